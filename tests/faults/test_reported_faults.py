"""Faults of session storage that users of other tools reported: the table of outcomes, and the damaged logs.

The inputs are those of `tests/data/reported-faults.yaml`. `TABLE` says for each whether the outcome is the
one stated there or another one, and why. Values and sessions have modules of their own.
"""

from __future__ import annotations

import pytest

import turnlog
from tests.faults import test_reported_sessions, test_reported_values
from tests.faults.stored import keep, log_file, note, notes, pieces, read, strict_lines, tree
from tests.faults.stores import JsonlPlace, Place
from tests.reported_faults import ids_of
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.persistence.salvage import LOST
from turnlog.testing.scripts import LogScript

OWN_KINDS = (
    "torn-tail", "mid-log-damage", "text-encoding", "json-edge", "path-and-permission", "duplicate-and-order",
    "version-skew", "size-limits", "orphan-tool-result",
)  # fmt: skip
AS_STATED = "as stated"
IMPORTING = "Transcripts of other tools are not imported"
COUNTED = "bounds are counted in bytes, frames and index use; nothing asserts seconds"
TABLE = {
    "torn-01": AS_STATED,
    "torn-02": AS_STATED,
    "torn-04": "zero bytes behind the last event are torn and kept aside; an event behind zeros makes it "
    "damage, which is a typed error with line and byte, and salvage saves all six events",
    "midlog-01": "appending to a damaged log is refused, and repair refuses it as well: it only ever cuts a "
    "torn tail, and salvage leaves the original as the copy. A bad frame is named by its byte, and in a "
    "database by its seq; a line is known in plain files",
    "midlog-02": AS_STATED,
    "midlog-04": "salvage keeps every event at its seq with a mark for each missing one, or, as the caller "
    "chooses, the prefix alone; nothing is renumbered and no event is invented",
    "enc-01": AS_STATED,
    "enc-03": AS_STATED,
    "enc-04": "line ends of Windows are read; a byte-order mark before the header is damage, which is told "
    f"with its path, and salvage saves every event. {IMPORTING}",
    "json-01": "2**63 is a number that a double holds exactly and comes back as it is; its stored text is "
    "ECMAScript's 9223372036854776000, which a reader with integers of any size takes for another number. "
    "-0.0, NaN, infinities are refused with their path before anything is written",
    "json-03": AS_STATED,
    "path-01": f"as stated for stores, commands and exports; there is no server whose URL holds an id. "
    f"{IMPORTING}",
    "path-03": "file names are those of the original format, in which the names of Windows devices and a dot "
    "at the end stay; writing on Windows is refused, so no file of such a name is made there",
    "path-04": AS_STATED,
    "order-01": "events have no id of their own, only a seq: a repeated append at a used seq is refused and "
    f"names the seq that is due. {IMPORTING}",
    "order-03": AS_STATED,
    "version-02": AS_STATED,
    "size-01": f"as stated, and {COUNTED}. The page is a file: it shows the true size, and the log has the "
    "rest",
    "size-02": "listing, tail and pages do not depend on the length of a log. A resume reads the log, as its "
    f"session is the log, and keeps it encoded: memory by bytes, not by events. The log has 60 MB, and "
    f"{COUNTED}",
    "size-03": "as stated for a block that is replaced; limits at export are tested with the exports",
    "size-04": f"as stated with 300 sessions and an event count of 4,000, and {COUNTED}",
    "orphan-01": f"the export is tested with the exports. {IMPORTING}",
    "orphan-03": "a live session refuses it. The storage calls take it, because valid logs of other writers "
    "hold such results, and verify names it",
}
"""Every case of these kinds, and how its outcome compares with the one stated with it."""
NOT_HERE = ("orphan-01",)


def test_the_table_is_whole() -> None:
    """Each case of these kinds has an entry and a test by its id."""
    assert sorted(TABLE) == sorted(ids_of(*OWN_KINDS))
    here = {*globals(), *vars(test_reported_values), *vars(test_reported_sessions)}
    tests = {name for name in here if name.startswith("test_")}
    missing = [i for i in TABLE if not any(f"test_{i.replace('-', '_')}" in name for name in tests)]
    assert missing == list(NOT_HERE)


# -- torn tails -----------------------------------------------------------------------------------


async def test_torn_01_power_lost_in_a_write(files: JsonlPlace) -> None:
    """All complete records are read; what was cut is named and kept; appends go on behind them."""
    async with turnlog.open(files.url) as store:
        await keep(store, notes(299))
        await store.append("s", [note(299)])
    path = log_file(files)
    path.write_bytes(path.read_bytes()[:-9])
    before = tree(files)
    async with turnlog.open(files.url) as store:
        seen = await store.inspect("s")
        assert tree(files) == before
        assert seen.torn is not None
        assert len(seen.events) == 299
        offset, size = seen.torn.offset, seen.torn.size
        assert isinstance(offset, int)
        assert isinstance(size, int)
        assert offset + size == len(before[str(path)])
        await store.append("s", [note(299)])
        assert [event.seq for event in await read(store)] == list(range(300))
        (kept,) = [f for f in (await store.verify("s")).findings if f.kind == "quarantine"]
        assert (kept.offset, kept.size) == (offset, size)
    (aside,) = path.parent.glob("torn-*.bin")
    assert aside.read_bytes() == before[str(path)][offset:]


async def test_torn_02_a_new_record_is_not_glued_on(files: JsonlPlace) -> None:
    """The next record has a line of its own, the torn bytes are part of none."""
    async with turnlog.open(files.url) as store:
        await keep(store, LogScript().start().user("hi").events, each=True)
    path = log_file(files)
    path.write_bytes(path.read_bytes()[:-40])
    async with turnlog.open(files.url) as store, store.resume("s") as session, session.turn() as turn:
        turn.user("hello")
    lines = strict_lines(path)
    assert [line.get("seq") for line in lines[1:]] == list(range(len(lines) - 1))
    (message,) = [line for line in lines if line["type"] == "user/message"]
    assert message["data"]["content"][0]["text"] == "hello"


async def test_torn_04_zero_bytes_at_the_end(files: JsonlPlace) -> None:
    """Zeros alone are a torn tail; an event behind zeros is never silently lost."""
    async with turnlog.open(files.url) as store:
        await keep(store, notes(5), each=True)
    path = log_file(files)
    good = path.read_bytes()
    path.write_bytes(good + bytes(4096))
    before = tree(files)
    async with turnlog.open(files.url) as store:
        seen = await store.inspect("s")
        assert (len(seen.events), tree(files)) == (5, before)
        await store.append("s", [note(5)])
        assert len(await read(store)) == 6
    assert path.read_bytes().startswith(good)
    assert bytes(64) not in path.read_bytes()
    assert len(strict_lines(path)) == 7
    sixth = pieces(path)[-1]
    path.write_bytes(good + bytes(4096) + sixth)
    async with turnlog.open(files.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert damage.value.offset == len(good)
        assert damage.value.line == (6 if path.suffix == ".jsonl" else None)
        assert (await store.salvage("s", to=target)).events == 6
    assert path.read_bytes() == good + bytes(4096) + sixth


# -- damage in the middle -------------------------------------------------------------------------


def _halve(place: Place) -> int:
    """Leave half of what holds the third event; return where that is."""
    if isinstance(place, JsonlPlace):
        path = log_file(place)
        stored = pieces(path)
        end = b"\n" if path.suffix == ".jsonl" else b""
        stored[3] = stored[3][: len(stored[3]) // 2] + end
        path.write_bytes(b"".join(stored))
        return sum(map(len, stored[:3]))
    place.edit("update frames set frame = substr(frame, 1, length(frame) / 2) where first_seq = 2")
    return 2


async def test_midlog_01_a_broken_record(place: Place) -> None:
    """It never looks like a shorter healthy session, and everything around it is saved."""
    six = notes(6)
    async with turnlog.open(place.url) as store:
        await keep(store, six, each=True)
    at = _halve(place)
    before = place.log("s")
    async with turnlog.open(place.url) as store, turnlog.open("memory:") as target:
        for call in (store.inspect("s"), store.load("s"), store.append("s", [note(6)]), store.resume("s")):
            with pytest.raises(turnlog.CorruptLogError) as damage:
                await call
            if isinstance(place, JsonlPlace):
                assert damage.value.offset == at
            plain = place.kind == "jsonl"
            assert damage.value.line == (3 if plain or not isinstance(place, JsonlPlace) else None)
            assert damage.value.seq == 2
        saved = await store.salvage("s", to=target)
        assert (saved.events, saved.lost) == (5, 1)
        assert [finding.offset for finding in saved.findings] == [at]
        got = await read(target)
        assert [event.line for event in got if event.type != LOST] == [e.line for e in six if e.seq != 2]
    assert place.log("s") == before


async def test_midlog_02_a_run_of_zeros(files: JsonlPlace) -> None:
    """A huge "line" of zeros hides nothing, and listing and tail do not read it whole."""
    async with turnlog.open(files.url) as store:
        await keep(store, notes(4), each=True)
    path = log_file(files)
    stored = pieces(path)
    path.write_bytes(b"".join(stored[:3]) + bytes(171_908) + b"".join(stored[3:]))
    backend = JsonlBackend(files.root)
    assert [entry.session_id async for entry in backend.list()] == ["s"]
    suffix = await backend.load_stored_from("s", -1, None)
    assert suffix is not None
    assert [event.seq for event in suffix.events] == [3]
    assert backend.files.bytes_read < 300_000
    await backend.aclose()
    async with turnlog.open(files.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError):
            await store.load("s")
        assert (await store.salvage("s", to=target)).events == 4


async def test_midlog_04_missing_numbers(place: Place) -> None:
    """Expected and found seq are named; nothing is renumbered; the caller chooses what to keep."""
    whole = LogScript().start().user("one").end().start().step().user("two").end_step().end().events
    async with turnlog.open(place.url) as store:
        await keep(store, whole, each=True)
    if isinstance(place, JsonlPlace):
        path = log_file(place)
        stored = pieces(path)
        path.write_bytes(b"".join(stored[:4] + stored[6:]))
    else:
        place.edit("delete from frames where first_seq in (3, 4)")
    before = place.log("s")
    async with turnlog.open(place.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert "3" in str(damage.value)
        assert "5" in str(damage.value)
        saved = await store.salvage("s", to=target)
        assert [(gap.first_seq, gap.last_seq) for gap in saved.missing] == [(3, 4)]
        got = await read(target)
        assert [event for event in got if event.type != LOST] == [e for e in whole if e.seq not in (3, 4)]
        assert [event.seq for event in got if event.type == LOST] == [3, 4]
        prefix = await store.salvage("s", to=target, new_id="p", keep="prefix")
        assert prefix.events == 3
        assert await read(target, "p") == whole[:3]
    assert place.log("s") == before
