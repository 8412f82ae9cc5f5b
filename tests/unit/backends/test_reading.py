"""Reading logs: whole, from the end, while they change; headers that belong and headers that do not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import META, FailingFiles, append, batch, deltas, event, events, loaded, store
from turnlog.backends.jsonl import seeking
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.tear import JsonlTear
from turnlog.backends.log_part import part_of
from turnlog.errors import CorruptLogError, UnsupportedFormatError
from turnlog.events import frames
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader, header_line
from turnlog.events.log import EventLog


def _log(root: Path) -> Path:
    return next(root.glob("*/*/session.jsonl*"))


def _packed(data: bytes, compression: str) -> bytes:
    return frames.compress(data) if compression == "zstd" else data


async def _part(backend: JsonlBackend, seq: int, limit: int | None) -> EventLog:
    found = await backend.load_stored_from(META.id, seq, limit)
    assert found is not None
    assert found.torn_marker is None
    return found.events


async def test_an_absent_session_is_none(backend: JsonlBackend, root: Path) -> None:
    """JL18, JL82: nothing is stored, neither in a missing root nor in an empty one."""
    for _ in range(2):
        assert await backend.load_stored("nothing") is None
        assert await backend.load_stored_from("nothing", 0, None) is None
        assert await backend.read_stored_revision("nothing") is None
        assert [piece async for piece in backend.scan_stored("nothing")] == []
        root.mkdir(exist_ok=True)


async def test_revisions_describe_the_bytes(make: OpenBackend, root: Path) -> None:
    """JL17, JL18: whole, light and suffix reads agree, also from another backend; an append changes it."""
    backend = make()
    claim = await store(backend, batch(0, 2), keep=True)
    written = await append(backend, batch(2, 1), claim)
    status = _log(root).stat()
    assert (
        written
        == f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    )
    for reader in (backend, make()):
        assert await reader.read_stored_revision(META.id) == written
        assert (await loaded(reader)).revision == written
        suffix = await reader.load_stored_from(META.id, 1, 1)
        assert suffix is not None
        assert suffix.revision == written
    assert await append(backend, batch(3, 1), claim) != written


async def test_a_log_deleted_while_it_is_read(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """JL20: a log that vanishes between being found and being read is absent, at every step."""
    backend = make(files)
    for call in ("open", "read_at", "status"):
        await store(backend, batch(0, 2))
        files.stop(call, _log(root).unlink)
        assert await backend.load_stored(META.id) is None
    await store(backend, batch(0, 2))
    files.stop("open", _log(root).unlink)
    assert await backend.load_stored_from(META.id, 0, None) is None
    await store(backend, batch(0, 2))
    await loaded(backend)
    files.stop(
        "path_status", lambda: files.stop("path_status", lambda: files.stop("path_status", _log(root).unlink))
    )
    assert await backend.read_stored_revision(META.id) is None


async def test_a_log_that_grows_is_taken_as_it_was(make: OpenBackend, files: FailingFiles) -> None:
    """JL19: a batch appended during the read does not make the reader start over, nor is it half read."""
    backend, writer = make(files), make()
    claim = await store(writer, batch(0, 2), keep=True)
    path = _log(Path(backend.root.path))
    data = batch(2, 1).frame() if path.name.endswith("zstd") else batch(2, 1).text()

    def grow() -> None:
        with path.open("ab") as file:
            file.write(data)

    files.stop("read_at", grow)
    found = await loaded(backend)
    assert found.events.next_seq == 2
    assert found.revision != await backend.read_stored_revision(META.id)
    assert (await loaded(backend)).events.next_seq == 3
    await writer.release(claim)


async def test_a_log_that_is_rewritten_is_read_again(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """JL19: what changes otherwise than by growing is read again until two looks agree."""
    backend = make(files)
    await store(backend, batch(0, 4))
    path = _log(root)
    shorter = path.read_bytes()
    await append(backend, batch(4, 2), None)

    def cut() -> None:
        os.truncate(path, len(shorter))

    files.stop("read_at", cut)
    assert (await loaded(backend)).events.next_seq == 4


async def test_a_log_that_never_rests_is_given_as_it_is(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """JL19: a log that is touched during every look is read a bounded number of times."""
    backend = make(files)
    await store(backend, batch(0, 2))
    path = _log(root)
    torn = path.read_bytes() + b"\x28"
    path.write_bytes(torn)
    looks = 0

    def touch() -> None:
        nonlocal looks
        looks += 1
        os.utime(path, ns=(looks, looks))
        files.stop("read_at", touch)

    files.stop("read_at", touch)
    assert (await loaded(backend)).events.next_seq == 2
    assert backend.reader.whole_reads == 32


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"", "empty or has no header"),
        (b"hello\n", "not valid JSON"),
        (b"null\n", "not a session header"),
        (b"5\n", "not a session header"),
        (b'{"type":"session","version":0,"id":"s-1","createdAt":1}\n', "not a session header"),
        (b"\xef\xbb\xbf" + header_line(META), "not valid JSON"),
        (b"\n" + header_line(META), "not valid JSON|exactly one header line"),
        (header_line(META)[:-1], "no header line|exactly one header line"),
        (b"\x00\x00\x00\x00\n", "not valid JSON"),
        (header_line(META).replace(b"s-1", b"s-\xff"), "not valid JSON"),
        (header_line(META).replace(b"s-1", b"s-9"), "another session"),
        (header_line(META).replace(b"/srv/app", b"/srv/other"), "not here"),
        (header_line(META).replace(b'"s-1"', b'""'), "another session"),
        (
            header_line(META).replace(b'"delegationDepth":0', b'"delegationDepth":0,"sandboxMode":"x"'),
            "retired",
        ),
    ],
)
async def test_headers_that_are_refused(
    backend: JsonlBackend, root: Path, compression: str, head: bytes, reason: str
) -> None:
    """JL7, JL37, JL41–JL43, JL73, JL74, Z24: a log without its own header is corrupt, with a reason."""
    await store(backend, batch(0, 1))
    _log(root).write_bytes(_packed(head, compression) if head else b"")
    with pytest.raises(CorruptLogError, match=reason) as caught:
        await backend.load_stored(META.id)
    assert caught.value.offset == 0
    with pytest.raises(CorruptLogError, match=reason):
        await backend.load_stored_from(META.id, 0, None)


@pytest.mark.parametrize("compression", ["zstd"], indirect=True)
async def test_header_frames_that_are_refused(backend: JsonlBackend, root: Path) -> None:
    """Z23, Z24: a header frame that is cut, broken, of two lines or fails its checksum."""
    await store(backend, batch(0, 1))
    frame = frames.compress(header_line(META))
    two = frames.compress(header_line(META) * 2)
    for bad in (frame[:3], frame[:-1], b"\x00" * 20, two, frame[:-1] + bytes([frame[-1] ^ 1])):
        _log(root).write_bytes(bad)
        with pytest.raises(CorruptLogError):
            await backend.load_stored(META.id)


async def test_other_versions_are_unsupported(backend: JsonlBackend, root: Path, compression: str) -> None:
    """JL6, JL8, JL9: another version is refused before the shape is looked at; the path is named."""
    await store(backend, batch(0, 1))
    log = _log(root)
    for line, direction in ((b'{"version":42,"id":7}\n', "newer"), (b'{"version":-1,"id":"s-1"}\n', "older")):
        log.write_bytes(_packed(line, compression))
        with pytest.raises(UnsupportedFormatError) as caught:
            await backend.load_stored(META.id)
        assert caught.value.direction == direction
        assert caught.value.path == str(log)


async def test_a_long_header_is_read(backend: JsonlBackend, compression: str) -> None:
    """JL72, Z14: a header of 24,000 characters, with a key that is not known, is read and kept."""
    meta = SessionHeader(id=META.id, created_at=1, cwd="/srv/app", extra={"note": os.urandom(12_000).hex()})
    await store(backend, batch(0, 1), meta=meta)
    assert dict((await loaded(backend)).meta.extra) == dict(meta.extra)


async def test_another_spelling_of_the_path(backend: JsonlBackend, root: Path) -> None:
    """JL75: a header whose own path names the same file is right, although it is spelled otherwise."""
    await store(backend, batch(0, 1))
    mine = root / "--srv-app--"
    mine.rename(root / "--SRV-APP--")
    with pytest.raises(CorruptLogError, match="not here"):
        await loaded(backend)
    mine.symlink_to(root / "--SRV-APP--")
    assert (await loaded(backend)).events.next_seq == 1


async def test_the_last_fifty_of_a_hundred_thousand(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """Suffix reads read a bounded part of the log, wherever in it they are, and never the whole."""
    backend = make(files)
    parts = [EncodedBatch.of(deltas(first, 500, 8)) for first in range(0, 100_000, 500)]
    claim = await store(backend, parts[0], keep=True)
    path = _log(root)
    zstd = path.name.endswith("zstd")
    with path.open("ab") as file:
        file.write(b"".join(part.frame() if zstd else part.text() for part in parts[1:]))
    await backend.release(claim)
    size = path.stat().st_size
    for seq, limit in ((-50, None), (99_950, 50), (50_000, 50), (0, 50)):
        backend.files.bytes_read = 0
        log = await _part(backend, seq, limit)
        assert len(log) == 50
        assert log.first_seq == (seq if seq >= 0 else 99_950)
        assert backend.files.bytes_read < 0.6 * size, (seq, backend.files.bytes_read, size)
    assert backend.reader.whole_reads == 0


async def test_suffixes_of_an_empty_log(backend: JsonlBackend) -> None:
    """A session of a header alone has an empty suffix at every seq."""
    await backend.materialize_header(META, claim=None)
    for seq in (0, 5, -5):
        log = await _part(backend, seq, 3)
        assert (len(log), log.first_seq) == (0, 0)


async def test_a_torn_tail_in_a_suffix(backend: JsonlBackend, root: Path) -> None:
    """D1, R2: a suffix read never hands out what a torn tail gives back: a repair makes it durable."""
    await store(backend, batch(0, 3))
    path = _log(root)
    data = batch(3, 3).frame() if path.name.endswith("zstd") else batch(3, 3).text()
    path.write_bytes(path.read_bytes() + data[:-1])
    whole = await loaded(backend)
    recovered = whole.torn_marker.recovered_events if isinstance(whole.torn_marker, JsonlTear) else 0
    durable = list(whole.events)[: len(whole.events) - recovered]
    assert list(await _part(backend, -2, None)) == durable[-2:]
    assert list(await _part(backend, 2, 2)) == durable[2:4]


@pytest.mark.parametrize("at", [1, 2])
async def test_damage_in_the_part_that_is_read(backend: JsonlBackend, root: Path, at: int) -> None:
    """R2: damage where a suffix read passes is named as a whole read names it."""
    await store(backend, *[EncodedBatch.of(deltas(first, 50, 400)) for first in range(0, 400, 50)])
    path = _log(root)
    data = bytearray(path.read_bytes())
    for offset in range(len(data) * at // 3, len(data) * at // 3 + 40_000):
        data[offset] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        await backend.load_stored(META.id)
    with pytest.raises(CorruptLogError):
        await backend.load_stored_from(META.id, 0, None)


async def test_a_log_deleted_under_a_suffix_read(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """JL20: the log goes away between a suffix read that did not fit and the whole read."""
    backend = make(files)
    await store(backend, batch(0, 3))
    path = _log(root)
    path.write_bytes(path.read_bytes() + b"\x28")
    backend.reader.load = lambda place, session_id: None  # type: ignore[method-assign]  # it is gone by then
    assert await backend.load_stored_from(META.id, 0, None) is None


async def test_scanning_yields_everything_in_order(backend: JsonlBackend, root: Path) -> None:
    """R2: a scan yields each readable frame and each damaged place, and raises for nothing that is stored."""
    parts = [EncodedBatch.of([event(0, "turn/start", turn=1)]), EncodedBatch.of(deltas(1, 40)), batch(41, 3)]
    await store(backend, *parts)
    path = _log(root)
    whole = path.read_bytes()
    found = [piece async for piece in backend.scan_stored(META.id)]
    assert all(isinstance(piece, StoredFrame) for piece in found)
    assert [e for piece in found for row in piece.rows for e in row.events()] == [  # type: ignore[union-attr]  # checked above
        e for part in parts for e in part.events()
    ]
    no_header = _packed(b"{}\n", "zstd" if path.name.endswith("zstd") else "none") + whole
    for bad in (whole[:-3], b"x" * 30 + whole, b"", b"\n" + whole[3:], no_header):
        path.write_bytes(bad)
        pieces = [piece async for piece in backend.scan_stored(META.id)]
        assert any(isinstance(piece, Damage) for piece in pieces)


async def test_an_abandoned_scan_closes_its_file(backend: JsonlBackend, root: Path) -> None:
    """A consumer that stops in the middle leaves no descriptor behind."""
    await store(backend, batch(0, 1), *[batch(n, 1) for n in range(1, 4)])
    await loaded(backend)
    before = len(os.listdir("/proc/self/fd"))
    scan = backend.scan_stored(META.id)
    await anext(scan)
    await scan.aclose()  # type: ignore[attr-defined]  # an async generator
    assert len(os.listdir("/proc/self/fd")) == before


def _sample(compression: str, sizes: list[int]) -> tuple[bytes, int, list[SessionEvent]]:
    """Return a log's bytes, where its body begins, and its events: batches of the given sizes."""
    data = _packed(header_line(META), compression)
    begin, seq, all_events = len(data), 0, []
    for number, size in enumerate(sizes):
        part = events(seq, size) if number % 2 else deltas(seq, size)
        encoded = EncodedBatch.of(part)
        data += encoded.frame() if compression == "zstd" else encoded.text()
        all_events += part
        seq += size
    return data, begin, all_events


@pytest.mark.parametrize("compression", ["zstd", "none"])
@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    seq=st.integers(-120, 400),
    limit=st.none() | st.integers(0, 80),
    window=st.sampled_from([64, 512, 1 << 16]),
)
def test_every_suffix_is_a_slice(
    compression: str, sizes: list[int], seq: int, limit: int | None, window: int
) -> None:
    """A suffix read equals the slice of the whole log, for every seq, limit and size of the windows."""
    data, begin, everything = _sample(compression, sizes)
    before = seeking._WINDOW
    seeking._WINDOW = window  # type: ignore[misc]  # small windows, so that small logs take every path
    try:
        log = seeking.read_suffix(
            compression,  # type: ignore[arg-type]  # one of the two encodings
            lambda offset, size: data[offset : offset + size],
            begin,
            len(data),
            seq,
            limit,
        )
    finally:
        seeking._WINDOW = before  # type: ignore[misc]  # as it was
    expected = part_of(EventLog(everything), seq, limit)
    assert log is not None
    assert (log.first_seq, list(log)) == (expected.first_seq, list(expected))


@pytest.mark.parametrize("compression", ["zstd", "none"])
@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    cut=st.integers(1, 400),
    seq=st.integers(-5, 90),
)
def test_a_cut_log_is_never_misread(compression: str, sizes: list[int], cut: int, seq: int) -> None:
    """A suffix read of a cut log gives a true slice of the events before the cut, or nothing at all."""
    data, begin, everything = _sample(compression, sizes)
    data = data[: max(begin, len(data) - cut)]
    log = seeking.read_suffix(
        compression,  # type: ignore[arg-type]  # one of the two encodings
        lambda offset, size: data[offset : offset + size],
        begin,
        len(data),
        seq,
        None,
    )
    if log is not None:
        assert list(log) == everything[log.first_seq : log.next_seq]


@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("seq", [-3, 0, 40, 90, 500])
def test_a_file_that_shrinks_under_a_search(compression: str, seq: int) -> None:
    """A log that is shorter than its size said ends every search, with a true slice or with nothing."""
    data, begin, everything = _sample(compression, [30, 30, 30, 3000])
    for size in (len(data) + 5, len(data) + 300_000):
        log = seeking.read_suffix(
            compression,  # type: ignore[arg-type]  # one of the two encodings
            lambda offset, count: data[offset : offset + count],
            begin,
            size,
            seq,
            None,
        )
        assert log is None or list(log) == everything[log.first_seq :]


@settings(deadline=None, max_examples=80)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=4, max_size=9),
    bad=st.sets(st.integers(0, 60)),
    seq=st.integers(0, 200),
)
def test_bad_lines_in_the_middle_are_never_taken_for_rows(sizes: list[int], bad: set[int], seq: int) -> None:
    """A search through a damaged plain log gives a true slice of its events, or nothing."""
    data, begin, everything = _sample("none", sizes)
    lines = data[begin:].splitlines(keepends=True)
    body = b"".join(b"garbage" * 9 + b"\n" if number in bad else line for number, line in enumerate(lines))
    data = data[:begin] + body
    before = seeking._WINDOW
    seeking._WINDOW = 256  # type: ignore[misc]  # small windows, so that small logs take every path
    try:
        log = seeking.read_suffix(
            "none", lambda offset, size: data[offset : offset + size], begin, len(data), seq, None
        )
    finally:
        seeking._WINDOW = before  # type: ignore[misc]  # as it was
    if log is not None:
        assert list(log) == everything[log.first_seq : log.next_seq]


def test_a_search_that_falls_into_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search whose middle lies in a long stretch of bad lines goes on before it."""
    monkeypatch.setattr(seeking, "_WINDOW", 256)
    data, begin, everything = _sample("none", [1, 30])
    more = EncodedBatch.of(events(31, 5)).text()
    data += b"garbage\n" * 400 + more
    log = seeking.read_suffix(
        "none", lambda offset, size: data[offset : offset + size], begin, len(data), 2, 3
    )
    assert log is not None
    assert list(log) == everything[2:5]


@pytest.mark.parametrize("compression", ["zstd"], indirect=True)
async def test_frames_without_rows(backend: JsonlBackend, root: Path) -> None:
    """Empty frames are passed over by every read; a frame that ends inside a row is damage."""
    await store(backend, batch(0, 2), batch(2, 2))
    log = _log(root)
    whole = log.read_bytes()
    empty = frames.compress(b"")
    log.write_bytes(whole + empty + empty)
    assert list(await _part(backend, -1, None)) == events(3, 1)
    assert list(await _part(backend, 1, 1)) == events(1, 1)
    log.write_bytes(whole + frames.compress(b'{"type":"session/title","seq":4'))
    for seq in (-1, 0):
        with pytest.raises(CorruptLogError):
            await backend.load_stored_from(META.id, seq, None)
    log.write_bytes(whole[: frames.scan(whole).spans[0][1]] + empty)
    assert len(await _part(backend, 0, None)) == 0


@pytest.mark.parametrize("limit", [1, 4])
def test_a_search_for_a_line_ends_where_it_is_told_to(limit: int) -> None:
    """Behind bad lines the search goes on up to its limit (exclusive), and to the end of the file at most."""
    text = b"bad\nworse\n"
    assert seeking._line_from(lambda at, size: text[at : at + size], 0, limit) is None
    assert seeking._line_from(lambda at, size: text[at : at + size], 0, 99) is None
