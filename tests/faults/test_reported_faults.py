"""Faults of session storage that users of other tools reported, each a test by its id, on every backend.

The inputs are those of `tests/data/reported-faults.yaml`. `TABLE` says for each whether the outcome is the
one stated there or another one, and why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.cli.logs import Cli
from tests.faults.power_loss import power_loss_mount
from tests.faults.stores import KINDS, JsonlPlace, Place, SqlitePlace, make_place
from tests.reported_faults import ids_of
from turnlog import SessionEvent
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.persistence.salvage import LOST
from turnlog.testing.scripts import LogScript, dicts

OWN_KINDS = (
    "torn-tail", "mid-log-damage", "text-encoding", "json-edge", "path-and-permission", "duplicate-and-order",
    "version-skew", "size-limits", "orphan-tool-result",
)  # fmt: skip
AS_STATED = "as stated"
TABLE = {
    "torn-01": AS_STATED,
    "torn-02": AS_STATED,
    "torn-04": "zero bytes behind the last event are torn and kept aside; an event behind zeros makes it "
    "damage, which is a typed error with line and byte, and salvage saves all six events",
    "midlog-01": "appending to a damaged log is refused, and repair refuses it as well: it only ever cuts a "
    "torn tail, and salvage leaves the original as the copy",
    "midlog-02": AS_STATED,
    "midlog-04": "salvage keeps every event at its seq with a mark for each missing one, or, as the caller "
    "chooses, the prefix alone; nothing is renumbered and no event is invented",
    "enc-01": AS_STATED,
    "enc-03": AS_STATED,
    "enc-04": "line ends of Windows are read; a byte-order mark before the header is damage, which is told "
    "with its place, and salvage saves every event. Transcripts of other tools are the importers' part",
    "json-01": "2**63 is a number that a double holds exactly and comes back as it is; -0.0, NaN, infinities "
    "are refused with their path before anything is written",
    "json-03": AS_STATED,
    "path-01": AS_STATED,
    "path-03": "file names are those of the original format, in which an asterisk and a dot at the end stay; "
    "writing on Windows is refused, so no file of such a name is made there",
    "path-04": AS_STATED,
    "order-01": "events have no id of their own, only a seq: a repeated append at a used seq is refused and "
    "names the seq that is due. Transcripts of other tools are the importers' part",
    "order-03": AS_STATED,
    "version-02": AS_STATED,
    "size-01": AS_STATED,
    "size-02": "listing, tail and pages do not depend on the length of a log. A resume reads the log, as its "
    "session is the log, and keeps it encoded: memory by bytes, not by events",
    "size-03": "a block is replaced by an append of its own; limits at export are the exporters' part",
    "size-04": "the same bounds, counted in frames, rows and index use instead of milliseconds",
    "orphan-01": "about importing another program's transcripts: the importers' part",
    "orphan-03": AS_STATED,
}
"""Every case of these kinds, and how its outcome compares with the one stated with it."""
NOT_HERE = ("orphan-01",)


def test_the_table_is_whole() -> None:
    """Each case of these kinds has an entry and a test by its id."""
    assert sorted(TABLE) == sorted(ids_of(*OWN_KINDS))
    here = {name for name in globals() if name.startswith("test_")}
    missing = [
        i for i in TABLE if i not in NOT_HERE and not any(i.replace("-", "_") in name for name in here)
    ]
    assert missing == []


@pytest.fixture(params=KINDS, name="place")
def _place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Give an empty store of each kind in turn."""
    return make_place(request.param, tmp_path)


@pytest.fixture(name="plain")
def _plain(tmp_path: Path) -> JsonlPlace:
    """Give an empty root of plain files."""
    found = make_place("jsonl", tmp_path)
    assert isinstance(found, JsonlPlace)
    return found


@pytest.fixture(name="store")
async def _store(place: Place) -> AsyncIterator[turnlog.SessionStore]:
    """Give an open store of each kind."""
    async with turnlog.open(place.url) as store:
        yield store


async def keep(store: turnlog.SessionStore, events: list[SessionEvent], session_id: str = "s") -> None:
    """Store a log in one batch."""
    async with store.create(id=session_id, cwd="/srv/app") as session:
        await store.ensure_materialized(session.id)
    await store.append(session_id, dicts(events))


async def read(store: turnlog.SessionStore, session_id: str = "s") -> list[SessionEvent]:
    """Return the stored events."""
    return list((await store.read_from(session_id, 0)).events)


def note(seq: int, text: str = "x") -> dict[str, Any]:
    """Return one event that stands by itself."""
    return {"type": "feedback/record", "seq": seq, "time": 1, "data": {"text": text}}


def log_file(place: JsonlPlace) -> Path:
    """Return the log of the only session."""
    (path,) = place.root.rglob("session.jsonl*")
    return path


def tree(place: JsonlPlace) -> dict[str, bytes]:
    """Return every file of a root."""
    return {str(p): p.read_bytes() for p in sorted(place.root.rglob("*")) if p.is_file()}


# -- torn tails -----------------------------------------------------------------------------------


async def test_torn_01_power_lost_in_a_write(plain: JsonlPlace) -> None:
    """All complete records are read; what was cut is named and kept; appends go on behind them."""
    async with turnlog.open(plain.url) as store:
        await keep(store, [SessionEvent.from_dict(note(seq, "r" * 50)) for seq in range(300)])
    path = log_file(plain)
    path.write_bytes(path.read_bytes()[:-9])
    before = tree(plain)
    async with turnlog.open(plain.url) as store:
        seen = await store.inspect("s")
        assert tree(plain) == before
        assert (len(seen.events), seen.torn is not None) == (299, True)
        assert seen.torn is not None
        offset, size = seen.torn.offset, seen.torn.size
        assert path.read_bytes()[offset:] == before[str(path)][offset:]
        await store.append("s", [note(299)])
        assert [event.seq for event in await read(store)] == list(range(300))
        (kept,) = [f for f in (await store.verify("s")).findings if f.kind == "quarantine"]
        assert (kept.offset, kept.size) == (offset, size)


async def test_torn_02_a_new_record_is_not_glued_on(plain: JsonlPlace) -> None:
    """The next record has a line of its own, the torn bytes are part of none."""
    async with turnlog.open(plain.url) as store:
        await keep(store, LogScript().start().user("hi").events)
    path = log_file(plain)
    path.write_bytes(path.read_bytes()[:-40])
    async with turnlog.open(plain.url) as store, store.resume("s") as session, session.turn() as turn:
        turn.user("hello")
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    assert [line.get("seq") for line in lines[1:]] == list(range(len(lines) - 1))
    (message,) = [line for line in lines if line["type"] == "user/message"]
    assert message["data"]["content"][0]["text"] == "hello"


async def test_torn_04_zero_bytes_at_the_end(plain: JsonlPlace) -> None:
    """Zeros alone are a torn tail; an event behind zeros is never silently lost."""
    five = [SessionEvent.from_dict(note(seq)) for seq in range(5)]
    async with turnlog.open(plain.url) as store:
        await keep(store, five)
    path = log_file(plain)
    good = path.read_bytes()
    path.write_bytes(good + bytes(4096))
    async with turnlog.open(plain.url) as store:
        await store.append("s", [note(5)])
        assert len(await read(store)) == 6
    assert b"\0" not in path.read_bytes()
    assert all(json.loads(line) for line in path.read_bytes().splitlines())
    sixth = SessionEvent.from_dict(note(5)).line + b"\n"
    path.write_bytes(good + bytes(4096) + sixth)
    async with turnlog.open(plain.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert (damage.value.line, damage.value.offset) == (6, len(good))
        assert (await store.salvage("s", to=target)).events == 6


# -- damage in the middle -------------------------------------------------------------------------


async def test_midlog_01_a_broken_line(plain: JsonlPlace) -> None:
    """It never looks like a shorter healthy session, and everything around it is saved."""
    six = [SessionEvent.from_dict(note(seq)) for seq in range(6)]
    async with turnlog.open(plain.url) as store:
        await keep(store, six)
    path = log_file(plain)
    lines = path.read_bytes().split(b"\n")
    offset = sum(len(line) + 1 for line in lines[:3])
    lines[3] = lines[3][: len(lines[3]) // 2]
    path.write_bytes(b"\n".join(lines))
    before = path.read_bytes()
    async with turnlog.open(plain.url) as store, turnlog.open("memory:") as target:
        for call in (store.inspect("s"), store.load("s"), store.append("s", [note(6)])):
            with pytest.raises(turnlog.CorruptLogError) as damage:
                await call
            assert (damage.value.line, damage.value.offset) == (3, offset)
        saved = await store.salvage("s", to=target)
        assert (saved.events, saved.lost) == (5, 1)
        got = await read(target)
        assert [event.line for event in got if event.type != LOST] == [e.line for e in six if e.seq != 2]
    assert path.read_bytes() == before


async def test_midlog_02_a_run_of_zeros(plain: JsonlPlace) -> None:
    """A huge "line" of zeros hides nothing, and listing and tail do not read it whole."""
    four = [SessionEvent.from_dict(note(seq)) for seq in range(4)]
    async with turnlog.open(plain.url) as store:
        await keep(store, four)
    path = log_file(plain)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + bytes(171_908) + b"".join(lines[3:]))
    backend = JsonlBackend(plain.root)
    assert [entry.session_id async for entry in backend.list()] == ["s"]
    suffix = await backend.load_stored_from("s", -1, None)
    assert suffix is not None
    assert [event.seq for event in suffix.events] == [3]
    assert backend.files.bytes_read < 300_000
    await backend.aclose()
    async with turnlog.open(plain.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError):
            await store.load("s")
        assert (await store.salvage("s", to=target)).events == 4


async def test_midlog_04_missing_numbers(place: Place) -> None:
    """Expected and found seq are named; nothing is renumbered; the caller chooses what to keep."""
    whole = LogScript().start().user("one").end().start().step().user("two").end_step().end().events
    async with turnlog.open(place.url) as store:
        async with store.create(id="s", cwd="/srv/app") as session:
            await store.ensure_materialized(session.id)
        for event in whole:
            await store.append("s", [event.to_dict()])
    if isinstance(place, JsonlPlace):
        _drop_pieces(place, {3, 4})
    else:
        place.run("delete from frames where first_seq in (3, 4)")  # type: ignore[attr-defined]  # of databases
    async with turnlog.open(place.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert "3" in str(damage.value)
        assert "5" in str(damage.value)
        saved = await store.salvage("s", to=target)
        assert [(gap.first_seq, gap.last_seq) for gap in saved.missing] == [(3, 4)]
        got = await read(target)
        assert [event for event in got if event.type != LOST] == [e for e in whole if e.seq not in (3, 4)]
        prefix = await store.salvage("s", to=target, new_id="p", keep="prefix")
        assert prefix.events == 3
        assert await read(target, "p") == whole[:3]


def _drop_pieces(place: JsonlPlace, gone: set[int]) -> None:
    """Take lines, or frames of one event, out of a log."""
    from turnlog.events import frames

    path = log_file(place)
    data = path.read_bytes()
    if path.suffix == ".zstd":
        spans = frames.scan(data).spans
        pieces = [data[start:end] for start, end in spans]
    else:
        pieces = data.splitlines(keepends=True)
    path.write_bytes(b"".join(piece for at, piece in enumerate(pieces) if at - 1 not in gone))


# -- text -----------------------------------------------------------------------------------------


async def test_enc_01_lone_surrogates(store: turnlog.SessionStore) -> None:
    """Half an emoji comes back as it was; what is stored and exported is valid UTF-8."""
    odd = {"\ud83d": "\udc80abc", "text": "ok \ud83d end"}
    await keep(store, LogScript().start().user("cut \ud83d").add("feedback/record", odd).events)
    got = await read(store)
    assert got[2].data == odd
    for event in got:
        event.line.decode("utf-8")
    exported = turnlog.dumps(turnlog.derive_messages(got))
    assert exported.encode("utf-8")


async def test_enc_03_nul_characters(store: turnlog.SessionStore, tmp_path: Path) -> None:
    """The same text comes back from every store, and through a copy."""
    odd = {"a": "what\x00ever", "\x00": "\x00"}
    await keep(store, [SessionEvent.from_dict({**note(0), "data": odd})])
    assert (await read(store))[0].data == odd
    async with turnlog.open(f"jsonl:{tmp_path / 'copy'}") as other:
        assert not (await store.copy(other)).failed
        assert (await read(other))[0].data == odd


async def test_enc_04_a_log_saved_by_an_editor(plain: JsonlPlace) -> None:
    """Line ends of Windows are read and appended behind; a byte-order mark is told, and nothing is lost."""
    three = [SessionEvent.from_dict(note(seq)) for seq in range(3)]
    async with turnlog.open(plain.url) as store:
        await keep(store, three)
    path = log_file(plain)
    windows = path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(windows)
    async with turnlog.open(plain.url) as store:
        await store.append("s", [note(3)])
        assert [event.data for event in await read(store)] == [{"text": "x"}] * 4
    path.write_bytes(b"\xef\xbb\xbf" + windows)
    async with turnlog.open(plain.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert damage.value.path is not None
        saved = await store.salvage("s", to=target)
        assert (saved.events, saved.header_lost) == (3, True)


# -- values ---------------------------------------------------------------------------------------


async def test_json_01_numbers_that_are_none(store: turnlog.SessionStore) -> None:
    """Each is refused with its path before anything is written, alike in every store."""
    await keep(store, [SessionEvent.from_dict(note(0))])
    for name, value, path in (
        ("nan", [0.5, float("nan")], "loss[1]"),
        ("inf", [0.5, float("inf")], "loss[1]"),
        ("negative inf", [-float("inf")], "loss[0]"),
        ("negative zero", [-0.0], "loss[0]"),
        ("overflow", [1e400], "loss[0]"),
    ):
        with pytest.raises(turnlog.InvalidEventError) as refused:
            await store.append("s", [{**note(1), "data": {"loss": value}}])
        assert path in refused.value.field, name
        assert len(await read(store)) == 1
    await store.append("s", [{**note(1), "data": {"big": 2**63}}])
    assert (await read(store))[1].data == {"big": 2**63}


async def test_json_01_a_bare_nan_in_a_log(plain: JsonlPlace) -> None:
    """A line that another program has written is reported, not a crash."""
    async with turnlog.open(plain.url) as store:
        await keep(store, [SessionEvent.from_dict(note(0))])
    path = log_file(plain)
    with path.open("ab") as file:
        file.write(b'{"type":"feedback/record","seq":1,"time":1,"data":{"x":NaN}}\n')
        file.write(SessionEvent.from_dict(note(2)).line + b"\n")
    async with turnlog.open(plain.url) as store:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert damage.value.line == 2


async def test_json_03_values_that_are_no_json(place: Place) -> None:
    """The whole batch is refused before the first byte, with index and field; the next one is stored."""
    from datetime import datetime

    loop: list[Any] = []
    loop.append(loop)
    async with turnlog.open(place.url) as store:
        await keep(store, [SessionEvent.from_dict(note(0))])
        before = place.log("s")
        for value in (object(), {1}, b"x", datetime(2026, 1, 1), {1: "x"}, loop):
            batch = [note(1), {**note(2), "data": {"bad": value}}, note(3)]
            with pytest.raises(turnlog.InvalidEventError) as refused:
                await store.append("s", batch)
            assert refused.value.index == 1
            assert "bad" in refused.value.field
            assert place.log("s") == before
        await store.append("s", [note(1)])
        assert len(await read(store)) == 2


# -- paths ----------------------------------------------------------------------------------------

HOSTILE = (
    "../../evil", "/etc/evil", "..", ".", "", "a/b", "a\\b", "C:\\x", "a\x00b", "%2e%2e%2fx", "~root/x",
    "x/../../y", "....//x", "\uff0e\uff0e\uff0fx",
)  # fmt: skip
STRANGE = (
    "agent:7:main", "CON", "nul.jsonl", "COM1", "a.", "a ", "a\x01b", "a\x7fb", "<x>|?*", "é", "e\u0301",
    "x" * 300, "漢" * 100, "-rf", ".hidden", "a\nb",
)  # fmt: skip


async def test_path_01_ids_that_leave_the_root(place: Place, tmp_path: Path) -> None:
    """Each is refused or names exactly one session inside; nothing outside is touched."""
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "evil").write_text("not yours")
    outside = {p: p.read_bytes() for p in beside.rglob("*")}
    stored: list[str] = []
    async with turnlog.open(place.url) as store:
        for session_id in HOSTILE:
            try:
                await keep(store, [SessionEvent.from_dict(note(0, session_id))], session_id)
            except turnlog.InvalidSessionIdError:
                continue
            stored.append(session_id)
        for session_id in stored:
            (event,) = await read(store, session_id)
            assert event.data == {"text": session_id}
        assert sorted([str(info.session_id) async for info in store.list()]) == sorted(stored)
        for session_id in stored:
            await store.delete(session_id)
        assert [info async for info in store.list()] == []
    assert {p: p.read_bytes() for p in beside.rglob("*")} == outside
    assert not (tmp_path.parent / "evil").exists()


async def test_path_03_ids_of_every_kind(place: Place) -> None:
    """Each works and comes back, or is refused at creation, alike everywhere; file names stay short."""
    accepted: list[str] = []
    async with turnlog.open(place.url) as store:
        for session_id in STRANGE:
            try:
                await keep(store, [SessionEvent.from_dict(note(0, session_id))], session_id)
            except turnlog.InvalidSessionIdError:
                continue
            accepted.append(session_id)
        assert sorted(set(STRANGE) - set(accepted)) == sorted(["x" * 300, "漢" * 100])
        assert sorted([str(info.session_id) async for info in store.list()]) == sorted(accepted)
        for session_id in accepted:
            (event,) = await read(store, session_id)
            assert event.data == {"text": session_id}
    if isinstance(place, JsonlPlace):
        names = [path.name for path in place.root.rglob("*")]
        assert max(len(name.encode()) for name in names) <= 255
        assert not any(set(name) & set('<>:"|?\\') or name[-1] == " " for name in names)


@pytest.mark.filterwarnings("ignore::turnlog.backends.jsonl.root.UnsafeLockWarning")
@pytest.mark.parametrize("encoding", ["none", "zstd"])
async def test_path_04_a_file_system_without_case(encoding: str, tmp_path: Path) -> None:
    """An id in another case is refused and never opened as the stored one, which stays as it is."""
    with power_loss_mount(tmp_path / "m", nocase=True) as mount:
        (mount.place / "x").mkdir()
        assert (mount.place / "X").is_dir()
        async with turnlog.open(f"jsonl:{mount.place}/s?compression={encoding}") as store:
            await keep(store, [SessionEvent.from_dict(note(seq)) for seq in range(2)], "Alpha")
            with pytest.raises((turnlog.LogError, turnlog.BackendError)):
                await keep(store, [SessionEvent.from_dict(note(0))], "alpha")
            for call in (store.load("alpha"), store.delete("alpha"), store.append("alpha", [note(2)])):
                with pytest.raises((turnlog.LogError, turnlog.BackendError)):
                    await call
            assert [info.session_id async for info in store.list()] == ["Alpha"]
            assert len(await read(store, "Alpha")) == 2


# -- order ----------------------------------------------------------------------------------------


async def test_order_01_the_same_record_again(store: turnlog.SessionStore) -> None:
    """A repeat under a used seq writes nothing and names the seq that is due, whatever it holds."""
    await keep(store, [SessionEvent.from_dict(note(seq)) for seq in range(2)])
    for repeated in (note(1), note(1, "different")):
        with pytest.raises(turnlog.UnexpectedSeqError) as refused:
            await store.append("s", [repeated])
        assert (refused.value.expected, refused.value.actual) == (2, 1)
    assert len(await read(store)) == 2


async def test_order_03_numbers_go_on_after_a_restart(place: Place, tmp_path: Path) -> None:
    """The next seq comes from what is stored; a number that exists twice is refused or reported."""
    for first in (0, 5):
        async with turnlog.open(place.url) as store:
            events = [SessionEvent.from_dict(note(seq)) for seq in range(first, first + 5)]
            if first == 0:
                await keep(store, events)
            else:
                await store.append("s", dicts(events))
    async with turnlog.open(place.url) as store, turnlog.open(f"jsonl:{tmp_path / 'copy'}") as copied:
        assert not (await store.copy(copied)).failed
        await copied.append("s", [note(10)])
        assert [event.seq for event in await read(copied)] == list(range(11))
    if isinstance(place, JsonlPlace):
        path = log_file(place)
        if path.suffix == ".jsonl":
            with path.open("ab") as file:
                file.write(SessionEvent.from_dict(note(3, "by hand")).line + b"\n")
                file.write(SessionEvent.from_dict(note(10)).line + b"\n")
            async with turnlog.open(place.url) as store:
                with pytest.raises(turnlog.CorruptLogError):
                    await store.load("s")
        return
    with pytest.raises(Exception, match=r"(?i)unique"):
        place.run("insert into frames select * from frames where first_seq = 5")  # type: ignore[attr-defined]  # of databases


# -- versions -------------------------------------------------------------------------------------


async def test_version_02_what_is_not_known_survives(place: Place, tmp_path: Path, cli_on: Any) -> None:
    """Unknown events, fields and blocks pass every operation unchanged, and what is known stays visible."""
    script = LogScript().start().step()
    message = {
        "content": [{"type": "text", "text": "hi"}],
        "source": {"kind": "user"},
        "role": "user",
        "id": "u",
        "x_new_field": {"deep": [1, 2]},
    }
    script.add("user/message", message, surfaceOp="append")
    script.add("budget/changed", {"left": 3}, ignorable=True)
    script.assistant("hello")
    answer = script.events[-1].to_dict()
    answer["data"]["message"]["content"].insert(0, {"type": "hologram", "data": "??"})
    script.events[-1] = SessionEvent.from_dict(answer)
    events = script.end_step().end().events
    async with turnlog.open(place.url) as store:
        await keep(store, events)
        await store.append("s", [note(len(events))])
        async with store.fork("s", at=len(events) - 1, child_id="fork"):
            pass
        async with turnlog.open(f"jsonl:{tmp_path / 'copy'}") as other:
            assert not (await store.copy(other)).failed
            for where, name in ((store, "s"), (store, "fork"), (other, "s")):
                got = await read(where, name)
                assert [event.line for event in got[: len(events)]] == [event.line for event in events]
        texts = turnlog.dumps(turnlog.derive_messages(events))
        assert "hello" in texts
    shown = cli_on(place.url, "show", "s")
    assert shown.code == 0
    assert "hello" in shown.out


@pytest.fixture(name="cli_on")
def _cli_on(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in a process of its own on any store."""
    from tests.cli.logs import Result, command

    def run(url: str, *arguments: str) -> Result:
        done = subprocess.run(
            command("--store", url, *arguments), capture_output=True, text=True, timeout=120, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


# -- sizes ----------------------------------------------------------------------------------------

_PEAK = """
import asyncio, resource, sys, turnlog
async def main(url):
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with turnlog.open(url) as store:
        {work}
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
asyncio.run(main(sys.argv[1]))
"""


def peak(url: str, work: str) -> int:
    """Return the kilobytes that some work needs in a process of its own, beyond the interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK.replace("{work}", work), url], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


async def test_size_01_one_huge_result(place: Place, cli_on: Any) -> None:
    """Twelve megabytes on one line are stored, listed, read and shown cut, in a few times their size."""
    text = "d" * 12_800_000
    script = LogScript().start().step().user().assistant(calls=["c"]).call("c").result("c", text)
    async with turnlog.open(place.url) as store:
        await keep(store, script.end_step().end().events)
        assert [info.session_id async for info in store.list()] == ["s"]
    work = "events = (await store.inspect('s')).events; turnlog.derive_messages(events)"
    assert peak(place.url, work) * 1024 < 6 * len(text) + (20 << 20)
    shown = cli_on(place.url, "show", "s")
    assert shown.code == 0
    assert len(shown.out) < 100_000
    whole = cli_on(place.url, "events", "s")
    assert text in whole.out


@pytest.mark.parametrize("kind", KINDS)
async def test_size_02_long_logs(kind: str, tmp_path: Path) -> None:
    """Listing, tail and pages need the same memory for a log of 2 and one of 60 megabytes."""
    place = make_place(kind, tmp_path)
    async with turnlog.open(place.url) as store:
        for name, count in (("short", 400), ("long", 12_000)):
            async with store.create(id=name, cwd="/srv/app") as session:
                for number in range(count):
                    session.append("feedback/record", {"text": os.urandom(2500).hex()})
                    if number % 50 == 49:
                        await session.flush()
    for work in (
        "[info async for info in store.list()]",
        "await store.tail('{name}', 20)",
        "await store.read_from('{name}', 200, 50)",
    ):
        short, long = (peak(place.url, work.format(name=name)) for name in ("short", "long"))
        assert long < short + 24_000, f"{work}: {short} and {long} KB"
    flat = "async for event in store.iter_events('long'): pass"
    assert peak(place.url, flat) < 150_000


async def test_size_03_one_block_is_taken_out(store: turnlog.SessionStore) -> None:
    """An append takes a refused image out of what the model sees; the log keeps it."""
    image = {"type": "image", "attachment": {"attachmentId": f"sha256:{'0' * 64}", "mediaType": "image/png"}}
    async with store.create(id="s", cwd="/srv/app") as session:
        async with session.turn() as turn:
            turn.user([{"type": "text", "text": "see shot"}, image])
        seq = next(event.seq for event in session.events if event.type == "user/message")
        session.replace_block(seq, 1)
        await session.flush()
    events = await read(store)
    assert "attachmentId" not in turnlog.dumps(turnlog.derive_messages(events))
    assert "see shot" in turnlog.dumps(turnlog.derive_messages(events))
    assert b"attachmentId" in events[seq].line


async def test_size_04_many_sessions(tmp_path: Path) -> None:
    """A page of a listing, and a page of events, cost the same whatever else the database holds."""
    place = make_place("sqlite", tmp_path)
    assert isinstance(place, SqlitePlace)
    async with turnlog.open(place.url) as store:
        for number in range(300):
            await keep(store, [SessionEvent.from_dict(note(0))], f"s-{number:04}")
        async with store.create(id="big", cwd="/srv/app") as session:
            for number in range(4000):
                session.append("feedback/record", {"text": str(number)})
                if number % 20 == 19:
                    await session.flush()
        backend: Any = store._coordinator.books.hooks._backend
        reader = backend.reader
        before = reader.frames_read
        assert len((await store.read_from("big", 2000, 100)).events) == 100
        assert reader.frames_read - before <= 7
        before = reader.frames_read
        page = [info.session_id async for info in store.list(after="big", limit=20)]
        assert reader.frames_read - before <= 20
        following = [info.session_id async for info in store.list(after=page[-1], limit=20)]
        assert len(set(page) | set(following)) == 40
    for query in (
        "select first_seq from frames where session = 1 and first_seq >= 5 order by first_seq limit 9",
        "select segment from sessions where segment > 'a' order by segment limit 20",
    ):
        plan = str(place.run(f"explain query plan {query}"))
        assert "SEARCH" in plan, plan


# -- results without calls ------------------------------------------------------------------------


async def test_orphan_03_a_result_without_its_call(place: Place) -> None:
    """A live session refuses it with the call's id, and a second result as well; nothing is written."""
    async with turnlog.open(place.url) as store:
        async with store.create(id="s", cwd="/srv/app") as session:
            for event in LogScript().start().step().user().assistant(calls=["c"]).events:
                session.append(event.type, event.data, surface_op=event.surface_op)
            await session.flush()
            before = place.log("s")
            script = LogScript(4, turn=1, step=1).result("zz")
            with pytest.raises(turnlog.InvariantError, match="zz"):
                session.append("tool/result", script.events[0].data, surface_op="append")
            assert session.seq == 4
            session.append("tool/call", LogScript(4, turn=1, step=1).call("c").events[0].data)
            result = LogScript(5, turn=1, step=1).result("c").events[0]
            session.append("tool/result", result.data, surface_op="append")
            with pytest.raises(turnlog.InvariantError, match="c"):
                session.append("tool/result", result.data, surface_op="append")
            await session.flush()
            assert place.log("s").startswith(before)
        assert len([e for e in await read(store) if e.type == "tool/result"]) == 1
