"""The verdict on stored bodies: good, torn or damaged (R2), in both encodings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events.samples import delta, deltas, events, logs, plain, text_of
from turnlog.errors import CorruptLogError
from turnlog.events import frames, lossless
from turnlog.events.batch import EncodedBatch, StoredFrame
from turnlog.events.chunk_runs import pack_lines
from turnlog.events.rows import RowError, decode_row
from turnlog.events.salvage import salvage_frames, salvage_rows
from turnlog.events.scan import Evidence, Issue, RowScanner, ScanResult, scan_frames, scan_text

LOG = [plain(0), plain(1, "step/start"), *deltas(2, 4), plain(6, "todo/write", todos=[{"x": "ü"}]), plain(7)]
TEXT = b"".join(line + b"\n" for line in pack_lines(LOG))
LINES = TEXT.splitlines(keepends=True)


def verdict(result: ScanResult) -> tuple[str, str | None, int]:
    """Sum up a result: what it is, the kind of its issue, how many events are readable."""
    state = "damage" if result.is_damage else "torn" if result.is_torn else "good"
    return state, result.issue.kind if result.issue else None, len(result.log)


def test_a_good_body_is_read_whole() -> None:
    """No issue, every byte committed, the same events."""
    result = scan_text(TEXT, first_offset=100)
    assert verdict(result) == ("good", None, 8)
    assert [event.to_dict() for event in result.log] == LOG
    assert (result.committed_bytes, result.size, result.torn_bytes) == (100 + len(TEXT), 100 + len(TEXT), 0)
    assert (result.committed_seq, result.evidence) == (8, None)
    result.check("s")


def test_an_empty_body_is_good() -> None:
    """A header alone is a session without events."""
    assert verdict(scan_text(b"")) == ("good", None, 0)
    assert verdict(scan_frames(b"")) == ("good", None, 0)


def test_crlf_is_accepted_and_kept() -> None:
    """A carriage return is JSON whitespace."""
    result = scan_text(TEXT.replace(b"\n", b"\r\n"))
    assert verdict(result) == ("good", None, 8)
    assert result.log.rows[0].line.endswith(b"\r")


@given(logs(), st.integers(1, 40))
def test_pieces_of_any_size_read_alike(log: list[dict[str, Any]], size: int) -> None:
    """Lines may be cut anywhere between two calls."""
    text = b"".join(line + b"\n" for line in pack_lines(log))
    scanner = RowScanner(0, 7)
    for at in range(0, len(text), size):
        scanner.feed_text(text[at : at + size])
    result = scanner.finish()
    assert result.log.digest() == scan_text(text).log.digest()
    assert (result.issue, result.committed_bytes, result.committed_seq) == (None, 7 + len(text), len(log))


@given(logs(), st.data())
def test_every_cut_of_plain_text_is_torn_never_damage(log: list[dict[str, Any]], data: st.DataObject) -> None:
    """A torn write loses exactly what came after the last whole line (R2)."""
    text = b"".join(line + b"\n" for line in pack_lines(log))
    cut = text[: data.draw(st.integers(0, len(text)))]
    result = scan_text(cut)
    whole = cut.rfind(b"\n") + 1
    assert result.committed_bytes == whole
    assert not result.is_damage
    assert result.is_torn is (whole < len(cut))
    assert result.log.digest() == scan_text(text[:whole]).log.digest()


@given(logs(), st.integers(1, 5), st.data())
def test_every_cut_of_frames_is_torn_never_damage(
    log: list[dict[str, Any]], per_frame: int, data: st.DataObject
) -> None:
    """Whole frames stay, a torn last one gives back its complete blocks, marked as unchecked (R2)."""
    made = events(log)
    batches = [EncodedBatch.of(made[at : at + per_frame]) for at in range(0, len(made), per_frame)]
    ends = [0]
    buf = b""
    for batch in batches:
        buf += batch.frame()
        ends.append(len(buf))
    cut = data.draw(st.integers(0, len(buf)))
    result = scan_frames(buf[:cut])
    whole = max(end for end in ends if end <= cut)
    committed = min(ends.index(whole) * per_frame, len(made))
    assert not result.is_damage
    assert (result.committed_bytes, result.committed_seq, result.size) == (whole, committed, cut)
    assert result.is_torn is (cut > whole)
    assert list(result.log) == made[: len(result.log)]
    assert len(result.log) >= committed


def test_cutting_the_checksum_recovers_the_frame() -> None:
    """Recovered events are in the log, the committed end is before them."""
    first, second = EncodedBatch.of(events(LOG[:2])).frame(), EncodedBatch.of(events(LOG[2:])).frame()
    buf = b"header" + first + second
    for cut, count in ((1, 8), (4, 8), (5, 2)):
        result = scan_frames(buf[:-cut], start=6, base=1000)
        assert verdict(result) == ("torn", "frame-torn", count)
        assert (result.committed_bytes, result.committed_seq) == (1006 + len(first), 2)
        assert result.torn_bytes == len(second) - cut
    stray = scan_frames(buf + frames.MAGIC[:2], start=6)
    assert (verdict(stray), stray.torn_bytes) == (("torn", "frame-torn", 8), 2)


TAILS = [
    (b"\n", "unparsable"),
    (b"garbage\n", "unparsable"),
    (b"\0" * 50, "unterminated"),
    (b"null\n", "not-an-event"),
    (b"5\n", "not-an-event"),
    (b"[]\n", "not-an-event"),
    (b'{"a":1}\n', "not-an-event"),
    (b'{"type":"a/b","seq":"8","time":1,"data":1}\n', "not-an-event"),
    (b"\xff\xfe\n", "bad-utf8"),
    (text_of(plain(8))[:-1], "unterminated"),
    (text_of(plain(8))[:-9] + b"\n", "unparsable"),
    (b'{"type":"turn/sta' + text_of(plain(3)), "unparsable"),
    (text_of(plain(3)), "seq-gap"),
    (LINES[-1], "repeat"),
    (LINES[-2] + LINES[-1], "repeat"),
    (LINES[2], "repeat"),
    (pack_lines(deltas(8, 3))[0].replace(b'"dt":[1', b'"dt":[1.5') + b"\n", "malformed-row"),
    (b"garbage\nmore\n", "unparsable"),
    (b"garbage\n" + text_of(plain(3), plain(4)), "unparsable"),
    (text_of(plain(8, "todo/write", nested=plain(9), more="xxxx"))[:-6], "unterminated"),
    (text_of(plain(8, "todo/write", nested=plain(9), more="xxxx"))[:-6] + b"\n", "unparsable"),
    (text_of(plain(8, "todo/write", nested=plain(9)))[:-3], "unterminated"),
]


@pytest.mark.parametrize(("tail", "kind"), TAILS)
def test_a_bad_tail_with_nothing_behind_it_is_torn(tail: bytes, kind: str) -> None:
    """It is cut at the first bad byte; what came before stays (R2)."""
    result = scan_text(TEXT + tail, first_offset=50)
    assert verdict(result) == ("torn", kind, 8)
    assert (result.committed_bytes, result.torn_bytes) == (50 + len(TEXT), len(tail))
    assert result.issue is not None
    assert (result.issue.line, result.issue.offset) == (6, 50 + len(TEXT))
    result.check("s")


def glued(seq: int) -> bytes:
    """Make a torn row with a whole one behind it, as an append without repair leaves it."""
    return b'{"type":"turn/sta' + text_of(plain(seq))


DAMAGES = [
    (b"garbage\n" + text_of(plain(8)), "unparsable", 8),
    (b"\n" + text_of(plain(20)), "unparsable", 20),
    (b"garbage\n" + pack_lines(deltas(7, 3))[0] + b"\n", "unparsable", 9),
    (b"garbage\n" + text_of(plain(8))[:-1], "unparsable", 8),
    (b"garbage\n" + glued(8)[:-1], "unparsable", 8),
    (text_of(plain(9)), "seq-gap", 9),
    (pack_lines(deltas(7, 3))[0] + b"\n", "seq-gap", 9),
    (LINES[-1] + text_of(plain(8)), "repeat", 8),
    (text_of(plain(3), plain(8)), "seq-gap", 8),
    (glued(8), "unparsable", 8),
    (text_of(plain(8))[:-1] + text_of(plain(9)), "unparsable", 9),
    (text_of(plain(8))[:-1] + text_of(plain(9))[:-1], "unterminated", 9),
    (b'{"type":"todo/write","seq":8,"time":1,"data":[' + text_of(plain(8)), "unparsable", 8),
    (b'{"type":"a/b","seq":8,"time":1,"data":1,"more":2}\n', "not-an-event", 8),
    (b'{"type":"a/b","seq":8,"time":1,"data":-0}\n', "not-lossless", 8),
    (b'{"type":"a/b","seq":8,"time":1,"data":"\xff"}\n', "bad-utf8", 8),
    (b'{"type":"a/b","seq":8,"time":1,"data":' + b"[" * 600 + b"]" * 600 + b"}\n", "too-deep", 8),
    (b"garbage\n" + b'{"type":"a/b","seq":9,"time":1.5,"data":1}\n', "unparsable", 9),
    (b"garbage\n" + glued(8), "unparsable", 8),
]


@pytest.mark.parametrize(("tail", "kind", "seq"), DAMAGES)
def test_a_later_event_makes_it_damage(tail: bytes, kind: str, seq: int) -> None:
    """A valid event is never cut away; the error has line, byte and seq (R2)."""
    result = scan_text(TEXT + tail, first_offset=50)
    assert verdict(result) == ("damage", kind, 8)
    assert result.evidence is not None
    assert result.evidence.seq == seq
    with pytest.raises(CorruptLogError) as caught:
        result.check("s", "/x")
    error = caught.value
    assert (error.line, error.offset, error.seq, error.kind, error.path) == (6, 50 + len(TEXT), 8, kind, "/x")


def test_the_first_issue_is_the_one_that_is_told() -> None:
    """What comes later changes neither the issue nor the evidence."""
    result = scan_text(TEXT + b"garbage\n" + text_of(plain(8)) + b"more\n" + text_of(plain(30)))
    assert verdict(result) == ("damage", "unparsable", 8)
    assert result.evidence is not None
    assert (result.evidence.seq, result.evidence.line) == (8, 7)


def test_evidence_names_its_own_place() -> None:
    """Line and byte of the event that proves the damage."""
    result = scan_text(TEXT + b"garbage\n\n" + glued(9))
    assert result.evidence is not None
    assert (result.evidence.line, result.evidence.seq) == (8, 9)
    assert (TEXT + b"garbage\n\n" + glued(9))[result.evidence.offset :] == text_of(plain(9))


def test_a_body_may_begin_anywhere() -> None:
    """A suffix has its own first seq and line."""
    scanner = RowScanner(6, 500, 4)
    scanner.feed_text(text_of(plain(6), plain(8)))
    result = scanner.finish()
    assert result.issue is not None
    assert (result.issue.line, result.log.first_seq, result.committed_seq) == (5, 6, 7)


def test_a_long_line_in_small_pieces_is_joined_once() -> None:
    """Pieces without a newline are kept apart until one comes."""
    scanner = RowScanner()
    line = text_of(plain(0, "todo/write", text="x" * 10_000))
    for at in range(0, len(line), 100):
        scanner.feed_text(line[at : at + 100])
        assert at + 100 >= len(line) or len(scanner._rest) == at // 100 + 1
    assert verdict(scanner.finish()) == ("good", None, 1)


def frame(*dicts: dict[str, Any]) -> bytes:
    """Make one frame of events, one line each."""
    return frames.compress(text_of(*dicts))


GOOD = frame(*LOG[:4]) + frame(*LOG[4:])


def test_rows_may_span_complete_frames() -> None:
    """The committed end moves only where frame and row end together."""
    text = text_of(*LOG)
    buf = frames.compress(text[:100]) + frames.compress(b"") + frames.compress(text[100:])
    result = scan_frames(buf)
    assert verdict(result) == ("good", None, 8)
    assert result.committed_bytes == len(buf)


FRAME_DAMAGES = [
    (frame(plain(9)), "seq-gap"),
    (frame(plain(3)), "seq-gap"),
    (frames.compress(b"garbage\n"), "unparsable"),
    (frames.compress(b"\n"), "unparsable"),
    (frames.compress(b"null\n"), "not-an-event"),
    (frames.compress(text_of(plain(8))[:-1]), "unterminated"),
    (frames.compress(text_of(plain(8))[:-1]) + frame(plain(9))[:-1], "unterminated"),
    (frames.compress(text_of(plain(8)) + LINES[-1]), "seq-gap"),
    (frame(*LOG[4:]) + frame(plain(8)), "repeat"),
    (frames.compress(text_of(LOG[7]) + b"x\n"), "repeat"),
    (frames.compress(text_of(LOG[7]) + b"x"), "repeat"),
    (frame(LOG[6], LOG[5]), "repeat"),
    (frame(plain(8))[:-1] + b"\0", "frame-checksum"),
    (frames.MAGIC + b"\x08" + b"\0" * 30, "frame-structure"),
    (b"\x50\x2a\x4d\x18\x01\0\0\0x", "frame-skippable"),
    (b"garbage" + frame(plain(8)), "frame-magic"),
    (b"\x29" + frame(plain(8))[1:], "frame-magic"),
    (frame(plain(8, "todo/write", text=list(range(200))))[:20] + frame(plain(9)), "frame-torn"),
    (frame(*LOG[4:]) + frame(*LOG[4:]), "repeat"),
]


@pytest.mark.parametrize(("tail", "kind"), FRAME_DAMAGES)
def test_what_is_wrong_in_whole_frames_is_damage(tail: bytes, kind: str) -> None:
    """A frame was written whole, so a bad row, checksum or structure in it is no tear (R2)."""
    result = scan_frames(b"h" + GOOD + tail, start=1)
    state, found, _ = verdict(result)
    assert state == "damage"
    assert found == kind
    assert result.committed_bytes == 1 + len(GOOD)
    with pytest.raises(CorruptLogError):
        result.check("s")


FRAME_TAILS = [
    (b"\0" * 40, "frame-magic"),
    (b"garbage at the end", "frame-magic"),
    (frame(*LOG[4:]), "repeat"),
    (frame(LOG[6], LOG[7]), "repeat"),
    (frame(LOG[7]), "repeat"),
    (frame(*LOG[4:6]) + frame(*LOG[6:]), "repeat"),
    (frame(*LOG[4:]) + frame(LOG[7])[:-2], "repeat"),
]


@pytest.mark.parametrize(("tail", "kind"), FRAME_TAILS)
def test_garbage_and_exact_repeats_at_the_end_are_torn(tail: bytes, kind: str) -> None:
    """Nothing valid follows, so a repair may cut there (R2)."""
    result = scan_frames(GOOD + tail)
    state, found, count = verdict(result)
    assert (state, count) == ("torn", 8)
    assert found == kind
    assert result.committed_bytes == len(GOOD)
    assert result.torn_bytes == len(tail)


def test_a_repeat_after_the_repeated_rows_ended_is_damage() -> None:
    """A second copy is followed row by row; anything else behind it is another writer's work."""
    result = scan_frames(GOOD + frame(LOG[6], LOG[7], plain(8)))
    assert verdict(result)[0] == "damage"
    assert result.evidence is not None


def test_recovery_from_a_torn_frame_stops_at_the_first_bad_row() -> None:
    """Unchecked bytes are believed only as far as they are good rows in order."""
    for bad in (b"garbage\n", text_of(plain(10)), b'{"type":'):
        torn = frames.compress(text_of(plain(8)) + bad)[:-4]
        result = scan_frames(GOOD + torn)
        assert verdict(result) == ("torn", "frame-torn", 9)
        assert result.committed_seq == 8


def test_a_scanner_shows_its_progress() -> None:
    """A client may look at log, issue and damage while it feeds."""
    scanner = RowScanner()
    scanner.feed_text(text_of(plain(0)))
    assert (len(scanner.log), scanner.issue, scanner.is_damage) == (1, None, False)
    scanner.feed_text(b"bad\n")
    assert scanner.issue is not None
    assert scanner.is_damage is False
    scanner.mark_torn(Issue(None, 0, "other", "kept out, there is an issue already"))
    assert scanner.issue.kind == "unparsable"
    scanner.mark_damage(Issue(None, 0, "other", "x"))
    assert (scanner.is_damage, scanner.issue.kind) == (True, "unparsable")
    assert scanner.finish().evidence is None


def test_frames_can_be_fed_one_by_one() -> None:
    """Without the end of a frame nothing is committed."""
    scanner = RowScanner(0, 10)
    scanner.feed_complete(text_of(plain(0)), in_complete_frame=True, frame_offset=10)
    scanner.feed_complete(text_of(plain(1)), in_complete_frame=True, frame_offset=60, frame_end=99)
    result = scanner.finish(size=99)
    assert (result.committed_bytes, result.committed_seq, result.size) == (99, 2, 99)
    scanner = RowScanner(0, 10)
    scanner.feed_complete(text_of(plain(0)), in_complete_frame=True, frame_offset=10)
    assert scanner.finish(size=60).committed_bytes == 10


def test_what_follows_known_damage_changes_nothing() -> None:
    """Later frames are not read, a second proof does not replace the first."""
    scanner = RowScanner()
    scanner.feed_complete(b"bad\n", in_complete_frame=True, frame_offset=0, frame_end=9)
    scanner.feed_complete(text_of(plain(0)), in_complete_frame=True, frame_offset=9, frame_end=20)
    first = Evidence(None, 30, None)
    scanner.mark_damage(Issue(None, 30, "other", "x"), first)
    scanner.mark_damage(Issue(None, 40, "other", "x"), Evidence(None, 40, None))
    result = scanner.finish(size=50)
    assert (verdict(result), result.evidence, result.committed_bytes) == (
        ("damage", "unparsable", 0),
        first,
        0,
    )


@given(
    logs(max_events=6),
    st.lists(
        st.sampled_from([b"bad\n", b"\n", b"null\n", b'{"type":"turn/s', text_of(plain(3))]), max_size=3
    ),
    st.integers(1, 40),
    st.data(),
)
def test_a_verdict_does_not_depend_on_the_pieces(
    log: list[dict[str, Any]], bad: list[bytes], size: int, data: st.DataObject
) -> None:
    """Damage and tears are judged alike however the bytes arrive."""
    lines = [line + b"\n" for line in pack_lines(log)]
    for piece in bad:
        lines.insert(data.draw(st.integers(0, len(lines))), piece)
    text = b"".join(lines)
    whole = scan_text(text)
    scanner = RowScanner()
    for at in range(0, len(text), size):
        scanner.feed_text(text[at : at + size])
    pieces = scanner.finish()
    assert (verdict(pieces), pieces.issue, pieces.evidence) == (verdict(whole), whole.issue, whole.evidence)
    assert (pieces.committed_bytes, pieces.size) == (whole.committed_bytes, whole.size)


damages = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 255), st.sampled_from(["set", "cut", "add"])), max_size=3
)


def damaged(data: bytes, changes: list[tuple[float, int, str]]) -> bytes:
    """Change, remove or insert single bytes at relative places."""
    buf = bytearray(data)
    for place, value, how in changes:
        at = int(place * (len(buf) - 1)) if buf else 0
        buf[at : at + (how != "add")] = b"" if how == "cut" else bytes([value])
    return bytes(buf)


@given(logs(max_events=8), damages)
def test_no_later_event_is_ever_cut_from_plain_text(
    log: list[dict[str, Any]], changes: list[tuple[float, int, str]]
) -> None:
    """Whatever happened to the bytes: where the verdict is torn, no whole event is behind the cut (R2)."""
    text = damaged(b"".join(line + b"\n" for line in pack_lines(log)), changes)
    result = scan_text(text)
    assert b"".join(row.line + b"\n" for row in result.log.rows) == text[: result.committed_bytes]
    if result.is_torn:
        for line in text[result.committed_bytes :].split(b"\n")[:-1]:
            try:
                row = decode_row(line)
            except RowError:
                continue
            assert row.last_seq < result.log.next_seq


@given(logs(max_events=8), damages)
def test_no_later_frame_is_ever_cut(log: list[dict[str, Any]], changes: list[tuple[float, int, str]]) -> None:
    """The same for frames: behind a torn end there is no whole frame that goes on (R2)."""
    made = events(log)
    frames_made = [EncodedBatch.of(made[at : at + 3]).frame() for at in range(0, len(made), 3)]
    buf = damaged(b"".join(frames_made), changes)
    result = scan_frames(buf)
    if result.is_torn:
        later = frames.find_complete(buf, result.committed_bytes)
        assert later is None or result.issue is None or result.issue.kind == "repeat"
    recovered = [
        e
        for item in salvage_frames(buf)
        if isinstance(item, StoredFrame)
        for r in item.rows
        for e in r.events()
    ]
    assert recovered[: result.committed_seq] == list(result.log)[: result.committed_seq]


@given(st.binary(max_size=300))
def test_arbitrary_bytes_get_a_verdict(data: bytes) -> None:
    """Nothing that lies on a disk makes the reader fail."""
    for result in (scan_text(data), scan_frames(data), scan_frames(frames.MAGIC + data)):
        assert len(result.log) == 0
        assert (result.issue is None) is (not data and result.size == 0)
    assert list(salvage_frames(frames.MAGIC + data))
    assert bool(list(salvage_rows(data))) is bool(data)


def test_a_lone_surrogate_row_reads_and_repeats() -> None:
    """The exact path gives the same verdicts."""
    log = [delta(k, "\ud800") for k in range(3)]
    text = b"".join(line + b"\n" for line in pack_lines(log))
    assert verdict(scan_text(text + text)) == ("torn", "repeat", 3)
    assert scan_text(text).log[1].data["chunk"]["text"] == "\ud800"
    assert lossless.decode(text.splitlines()[0])["data"]["texts"] == ["\ud800"] * 3
