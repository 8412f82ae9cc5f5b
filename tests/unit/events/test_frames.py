"""zstd frames: exact bytes, structure, torn prefixes, search from the end and by seq."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from turnlog.events import frames
from turnlog.events.frames import FoundFrame, FrameError

OPTIONS = zstd.CompressionParameter


def foreign(data: bytes, **options: int) -> bytes:
    """Compress as another writer might."""
    named = {int(getattr(OPTIONS, name)): value for name, value in options.items()}
    return zstd.compress(data, options=named)


def test_compressors_are_kept_for_the_next_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A used compressor gives the same bytes again, and only so many are kept."""
    monkeypatch.setattr(frames, "_idle_compressors", [])
    data = bytes(range(200)) * 30
    first = frames.compress(data)
    assert frames.compress(b"something else") != first
    assert frames.compress(data) == first
    assert len(frames._idle_compressors) == 1
    monkeypatch.setattr(frames, "_COMPRESSORS_KEPT", 0)
    assert frames.compress(data) == first
    assert frames._idle_compressors == []


def test_frames_have_the_originals_bytes() -> None:
    """Checksum, unknown content size, level 3: the vectors of the file format (Z1)."""
    assert frames.compress(b"").hex() == "28b52ffd045801000099e9d851"
    assert frames.compress(b"x\n").hex() == "28b52ffd0458110000780aaefde922"


@given(st.binary(max_size=3000), st.integers(1, 200))
def test_frames_round_trip(piece: bytes, times: int) -> None:
    """What was compressed comes back, and the structure alone finds the end."""
    data = piece * times
    frame = frames.compress(data)
    assert frames.decompress(frame) == data
    assert frames.frame_end(frame, 0) == len(frame)
    assert frames.scan(frame + frame).spans == [(0, len(frame)), (len(frame), 2 * len(frame))]


FOREIGN = [
    {},
    {"checksum_flag": 1},
    {"content_size_flag": 0},
    {"compression_level": 19, "checksum_flag": 1},
    {"compression_level": 1, "window_log": 10},
]


@pytest.mark.parametrize("options", FOREIGN)
@pytest.mark.parametrize("size", [0, 1, 100, 300, 70_000, 300_000])
def test_frames_of_other_writers_are_read(options: dict[str, int], size: int) -> None:
    """Content size, single segment, no checksum and any level are fine (Z8)."""
    data = random.Random(size).randbytes(size // 2) + b"a" * (size - size // 2)
    frame = foreign(data, **options)
    assert frames.frame_end(frame + b"rest", 0) == len(frame)
    assert frames.decompress(frame) == data


def test_run_length_blocks_and_dictionary_ids_have_their_sizes() -> None:
    """The structure is followed for every descriptor, also those no writer here emits (Z8)."""
    rle = frames.MAGIC + b"\x00\x58" + (3 | 100 << 3).to_bytes(3, "little") + b"a"
    assert frames.frame_end(rle, 0) == len(rle)
    assert frames.decompress(rle) == b"a" * 100
    for descriptor, extra in ((0x21, 2), (0x42, 5), (0x83, 9), (0xE3, 12), (0x00, 1), (0x04, 1)):
        frame = frames.MAGIC + bytes([descriptor]) + b"\0" * extra + b"\x01\0\0"
        checksum = b"\0" * 4 if descriptor & 4 else b""
        assert frames.frame_end(frame + checksum, 0) == len(frame) + len(checksum)
        assert frames.frame_end((frame + checksum)[:-1], 0) is None


def test_a_frame_cut_anywhere_is_torn() -> None:
    """No prefix of a frame is taken for a whole one or for garbage (Z7)."""
    frame = frames.compress(bytes(range(256)) * 20)
    for size in range(len(frame)):
        found = frames.scan(frame + frame[:size])
        assert found.spans == [(0, len(frame))]
        assert found.torn_at == (len(frame) if size else None)


@pytest.mark.parametrize(
    ("buf", "kind"),
    [
        (b"\x28\xb5\x2f\xfc", "frame-magic"),
        (b"ab", "frame-magic"),
        (b"\x50\x2a\x4d\x18\x01\0\0\0x", "frame-skippable"),
        (frames.MAGIC + b"\x08\x58\x01\0\0", "frame-structure"),
        (frames.MAGIC + b"\x10\x58\x01\0\0", "frame-structure"),
        (frames.MAGIC + b"\x00\x58\x07\0\0", "frame-structure"),
    ],
)
def test_bytes_that_cannot_be_a_frame_are_refused(buf: bytes, kind: str) -> None:
    """The error names the place and what is impossible (Z7)."""
    with pytest.raises(FrameError) as caught:
        frames.scan(frames.compress(b"x") + buf)
    assert (caught.value.kind, caught.value.offset) == (kind, len(frames.compress(b"x")))


def test_a_bad_frame_does_not_decompress() -> None:
    """A wrong checksum, a wrong block, an early end and trailing bytes are errors (Z4)."""
    frame = frames.compress(b"hello hello hello\n" * 50)
    flipped = bytearray(frame)
    flipped[-1] ^= 1
    for bad, kind in (
        (bytes(flipped), "frame-checksum"),
        (frame[:-1], "frame-structure"),
        (frame + b"x", "frame-structure"),
        (b"", "frame-structure"),
        (b"no frame", "frame-checksum"),
    ):
        with pytest.raises(FrameError) as caught:
            frames.decompress(bad)
        assert caught.value.kind == kind


def test_complete_blocks_of_a_torn_frame_come_back() -> None:
    """Block by block, and everything when only the checksum is cut (R2)."""
    data = b"".join(b'{"line":%d,"x":"%d"}\n' % (k, k * 7919) for k in range(20_000))
    frame = frames.compress(data)
    assert frames.decode_prefix(frame[:-1]) == data
    assert frames.decode_prefix(frame[:-4]) == data
    assert frames.decode_prefix(frame[:-5]) == data[: len(data) // 131072 * 131072]
    lengths = {len(frames.decode_prefix(frame[:size])) for size in range(0, len(frame), 501)}
    assert len(lengths) > 2
    for size in range(0, len(frame), 501):
        assert data.startswith(frames.decode_prefix(frame[:size]))


@given(st.binary(max_size=400), st.data())
def test_a_prefix_never_gives_wrong_bytes(data: bytes, draw: st.DataObject) -> None:
    """Whatever comes out of a torn frame is a beginning of what went in."""
    frame = frames.compress(data)
    cut = draw.draw(st.integers(0, len(frame)))
    assert data.startswith(frames.decode_prefix(frame[:cut]))


def test_a_prefix_with_a_bad_block_stops_before_it() -> None:
    """Blocks before the fault were complete; nothing after it is guessed."""
    data = random.Random(3).randbytes(200_000).hex().encode()
    frame = bytearray(frames.compress(data))
    third = frames._block_ends(bytes(frame))[1]
    frame[third] |= 6  # a block type that no block has
    assert frames.decode_prefix(bytes(frame[:-5])) == data[: 2 * 131072]
    assert frames.decode_prefix(b"\x28\xb5\x2f\xfd\x04\x58\x07\x00\x00") == b""
    assert frames.decode_prefix(b"garbage") == b""


def test_a_complete_frame_is_found_among_other_bytes() -> None:
    """Only structure and checksum together make a frame."""
    frame = frames.compress(b"x" * 50)
    bad = bytearray(frame)
    bad[-1] ^= 1
    buf = frames.MAGIC + b"\xff" + bytes(bad) + frames.MAGIC + b"zz" + frame + frame[:-1]
    assert frames.find_complete(buf, 0) == buf.index(frame)
    assert frames.find_complete(buf, buf.index(frame) + 1) is None
    assert frames.find_complete(b"", 0) is None


class Medium:
    """Bytes that count how much of them is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read = 0

    def read_at(self, offset: int, size: int) -> bytes:
        """Read like `os.pread`."""
        piece = self.data[offset : offset + size]
        self.read += len(piece)
        return piece


def numbered(count: int, size: int = 400) -> tuple[bytes, list[int]]:
    """Make frames whose text begins with their number; also return where they start."""
    source = random.Random(count)
    made: list[bytes] = []
    starts = []
    at = 0
    for k in range(count):
        noise = source.randbytes(source.randrange(size)).hex().encode()
        frame = frames.compress(b"%d %s\n" % (k * 10, noise))
        starts.append(at)
        at += len(frame)
        made.append(frame)
    return b"".join(made), starts


def number(text: bytes) -> int | None:
    """Return the number a frame's text begins with."""
    return int(text.split(b" ")[0]) if text else None


def test_the_last_frame_is_found_from_the_end() -> None:
    """Reading the end of a long log costs one window (B4)."""
    data, starts = numbered(2000)
    medium = Medium(data)
    tail = frames.find_tail(medium.read_at, len(data))
    assert tail is not None
    assert (tail.frames[0].start, tail.frames[0].end, tail.torn_at) == (starts[-1], len(data), None)
    assert number(tail.frames[0].text) == 19_990
    assert medium.read == 1 << 16


def wanting(first: int) -> Callable[[FoundFrame], bool]:
    """Stop the search at the frame that begins with a number not above `first`."""
    return lambda found: (number(found.text) or 0) <= first


@pytest.mark.parametrize("first", [19_990, 19_500, 12_345, 0])
def test_more_frames_are_found_until_enough(first: int) -> None:
    """The frames are consecutive, verified and in order; each byte is read once."""
    data, starts = numbered(2000)
    medium = Medium(data)
    tail = frames.find_tail(medium.read_at, len(data), wanting(first))
    assert tail is not None
    begin = first // 10
    assert [found.start for found in tail.frames] == starts[begin:]
    assert [number(found.text) for found in tail.frames] == [k * 10 for k in range(begin, 2000)]
    assert medium.read <= len(data)


def test_a_torn_tail_is_told_with_the_last_whole_frame() -> None:
    """Whatever is left of the last frame, the one before it is found."""
    data, starts = numbered(30)
    for cut in range(1, len(data) - starts[-1]):
        torn = data[:-cut]
        tail = frames.find_tail(Medium(torn).read_at, len(torn))
        assert tail is not None
        assert (tail.frames[-1].start, tail.torn_at) == (starts[-2], starts[-1])


def test_a_bad_end_has_no_tail() -> None:
    """Garbage, a bad checksum or no frame at all are for the full scan to judge."""
    data, _ = numbered(30)
    flipped = bytearray(data)
    flipped[-1] ^= 1
    for bad in (b"", data + b"garbage", bytes(flipped), frames.compress(b"x")[:-1], b"\0" * 200_000):
        assert frames.find_tail(Medium(bad).read_at, len(bad)) is None
    alone = bytearray(frames.compress(b"x"))
    alone[-1] ^= 1
    assert frames.find_tail(Medium(bytes(alone)).read_at, len(alone)) is None


def test_a_bad_last_frame_is_not_searched_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain that proves it is checked once, not from every frame before it."""
    data, _ = numbered(30)
    calls: list[int] = []
    original = frames.decompress

    def counting(frame: bytes) -> bytes:
        calls.append(len(frame))
        return original(frame)

    monkeypatch.setattr(frames, "decompress", counting)
    flipped = bytearray(data)
    flipped[-1] ^= 1
    assert frames.find_tail(Medium(bytes(flipped)).read_at, len(flipped)) is None
    assert len(calls) == 3


def test_a_search_stops_where_the_frames_before_do_not_fit() -> None:
    """A broken frame further up ends the walk; what was found stands."""
    data, starts = numbered(30)
    broken = bytearray(data)
    broken[starts[20]] ^= 1
    tail = frames.find_tail(Medium(bytes(broken)).read_at, len(data), lambda found: False)
    assert tail is not None
    assert tail.frames[0].start == starts[21]
    flipped = bytearray(data)
    flipped[starts[21] - 1] ^= 1
    unproven = frames.find_tail(Medium(bytes(flipped)).read_at, len(data), lambda found: False)
    assert unproven is not None
    assert unproven.frames[0].start == starts[21]
    limited = frames.find_tail(Medium(data).read_at, len(data), lambda found: False, start=starts[25])
    assert limited is not None
    assert limited.frames[0].start == starts[25]


def test_the_magic_inside_a_frame_does_not_mislead() -> None:
    """Incompressible text may hold the four bytes; the chain and the checksum tell."""
    source = random.Random(5)
    noise = b"".join(
        source.randbytes(60) + frames.MAGIC + bytes([source.randrange(256)]) for _ in range(3000)
    )
    inner = frames.compress(noise)
    data = frames.compress(b"0 a\n") + inner + frames.compress(b"20 " + noise[:5000]) + inner
    assert data.count(frames.MAGIC) > 50
    tail = frames.find_tail(Medium(data).read_at, len(data), lambda found: found.text == b"0 a\n")
    assert tail is not None
    assert [found.text for found in tail.frames] == [b"0 a\n", noise, b"20 " + noise[:5000], noise]


def test_a_frame_is_found_by_seq() -> None:
    """Bisection finds the frame of any seq, and reads a small part of a long log."""
    data, starts = numbered(3000, 3000)
    for seq in (0, 1, 9, 10, 15_555, 29_989, 29_990, 40_000, 7, 64, 12_340):
        medium = Medium(data)
        found = frames.seek(medium.read_at, len(data), seq, number)
        assert found == starts[min(seq // 10, 2999)]
        assert medium.read < len(data) / 4
    assert frames.seek(Medium(data).read_at, len(data), -1, number) is None
    assert frames.seek(Medium(b"").read_at, 0, 5, number) is None


@given(st.integers(1, 40), st.sampled_from([10, 3000, 60_000]), st.data())
def test_seeking_is_right_for_any_sizes(count: int, size: int, data: st.DataObject) -> None:
    """Small and huge frames, any place."""
    buf, starts = numbered(count, size)
    seq = data.draw(st.integers(0, count * 10 + 5))
    assert frames.seek(Medium(buf).read_at, len(buf), seq, number) == starts[min(seq // 10, count - 1)]


def test_seeking_passes_over_empty_and_torn_frames() -> None:
    """Frames without rows are no places; a torn last frame is not searched."""
    parts = [frames.compress(b"0 a\n"), frames.compress(b""), frames.compress(b"10 " + b"b" * 90), b""]
    parts[3] = frames.compress(b"20 c\n")[:-2]
    data = b"".join(parts)
    assert frames.seek(Medium(data).read_at, len(data), 25, number) == len(parts[0]) + len(parts[1])
    assert frames.seek(Medium(data).read_at, len(data), 5, number) == 0
    false = frames.MAGIC + b"\xff" + data
    assert frames.seek(Medium(false).read_at, len(false), 5, number) == 5
    noise = random.Random(1).randbytes(70_000)
    far = frames.compress(b"0 " + noise) + frames.MAGIC + b"\xff" + frames.compress(b"10 " + noise)
    assert frames.seek(Medium(far).read_at, len(far), 12, number) == len(far) - len(
        frames.compress(b"10 " + noise)
    )
