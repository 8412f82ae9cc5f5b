"""What the JSONL backend writes, seen as files: rows, places and lineage, in both encodings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.jsonl_harness import LOG_NAMES, JsonlHarness
from turnlog.errors import LogError
from turnlog.events import frames
from turnlog.events.chunk_runs import pack_lines
from turnlog.events.ecmascript import dumps
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing import LogScript, append_live, go_live, opened
from turnlog.testing.scripts import dicts, header, types


@pytest.fixture(params=["none", "zstd"], name="harness")
def _harness(request: pytest.FixtureRequest, tmp_path: Path) -> JsonlHarness:
    return JsonlHarness(tmp_path, request.param)


def log_of(harness: JsonlHarness, session_id: str, project: str = "--srv-app--") -> Path:
    """Return the path of a log."""
    return harness.root / project / session_id / harness.log_name


def lines_of(harness: JsonlHarness, session_id: str) -> list[bytes]:
    """Return the lines of a log as text."""
    data = log_of(harness, session_id).read_bytes()
    if harness.compression == "zstd":
        data = b"".join(frames.decompress(data[start:end]) for start, end in frames.scan(data).spans)
    return data.splitlines(keepends=True)


async def test_a_run_of_chunks_is_one_row(harness: JsonlHarness) -> None:
    """Streamed deltas are stored as one packed row and come back as the same events (JL56, CR1)."""
    events = LogScript().start().step().chunks("a", "b", "c", "d").end_step().end().events
    async with opened(await harness.open()) as store:
        await store.create(header("s"))
        await store.append("s", events)
    rows = lines_of(harness, "s")
    assert [row.startswith(b'{"type":"text-chunks"') for row in rows].count(True) == 1
    assert len(rows) == 1 + len(events) - 3
    async with opened(await harness.open()) as store:
        assert dicts((await store.load("s")).events) == dicts(events)


async def test_a_packed_row_counts_for_its_members(harness: JsonlHarness) -> None:
    """The next batch goes on after the last member of a row (JL59)."""
    script = LogScript().start().step().chunks("a", "b", "c", "d")
    async with opened(await harness.open()) as store:
        await store.create(header("s"))
        await store.append("s", script.events)
        first = len(script.events)
        script.assistant().end_step().end()
        await store.append("s", script.events[first:])
        assert [e.seq for e in (await store.load("s")).events] == list(range(len(script.events)))


async def test_unpacked_rows_are_read_and_packed_ones_follow(harness: JsonlHarness) -> None:
    """A log that was written one event per line is continued with packed rows (JL58)."""
    script = LogScript().start().step().chunks("a", "b", "c").assistant().end_step().end()
    first = dicts(script.events)
    await harness.plant({"type": "session", **header("s").to_dict(), "delegationDepth": 0}, first)
    script.start().step().chunks("d", "e", "f").assistant().end_step().end()
    async with opened(await harness.open()) as store:
        await store.append("s", script.events[len(first) :])
        assert dicts((await store.load("s")).events) == dicts(script.events)
    rows = lines_of(harness, "s")
    assert rows[1 : 1 + len(first)] == [dumps(event).encode() + b"\n" for event in first]
    assert rows[1 + len(first) :] == [line + b"\n" for line in pack_lines(dicts(script.events[len(first) :]))]


async def test_a_fork_is_its_seed_and_its_mark(harness: JsonlHarness) -> None:
    """A child's log holds lineage, the parent's lines as they are, then one end-of-seed mark (JL27)."""
    registry = SessionRegistry(Session)
    async with opened(await harness.open(registry=registry)) as store:
        parent = go_live(registry, "parent")
        append_live(parent, LogScript().turn(calls=["c1"]).events)
        child = registry.fork(parent, child_id="child")
        await store.flush(parent)
        await store.flush(child)
    theirs, mine = lines_of(harness, "parent"), lines_of(harness, "child")
    assert mine[1:-1] == theirs[1:]
    assert b'"parentSession":"parent","seedLength":%d' % len(parent.events) in mine[0]
    assert mine[-1].startswith(b'{"type":"session/end-seed"')


async def test_a_session_stays_in_its_place(harness: JsonlHarness) -> None:
    """A header cannot be changed by a reader, and later appends go to the first place (JL32)."""
    script = LogScript().turn()
    half = len(script.events)
    script.turn()
    async with opened(await harness.open()) as store:
        await store.create(header("s"))
        await store.append("s", script.events[:half])
        loaded = await store.load("s")
        with pytest.raises(AttributeError):
            loaded.meta.cwd = "/elsewhere"  # type: ignore[misc]  # what must not work
        await store.append("s", script.events[half:])
    assert [path.parent.parent.name for path in harness.root.rglob("session.jsonl*")] == ["--srv-app--"]
    assert len(lines_of(harness, "s")) > half - 2


async def test_a_foreign_artifact_stops_the_first_write(harness: JsonlHarness) -> None:
    """A log of the other encoding that appears after create is never written beside (Z27, JL89)."""
    other = "zstd" if harness.compression == "none" else "none"
    folder = log_of(harness, "s").parent
    async with opened(await harness.open()) as store:
        await store.create(header("s"))
        folder.mkdir(parents=True)
        text = b'{"type":"session","version":0,"id":"s","createdAt":1,"cwd":"/srv/app","delegationDepth":0}\n'
        (folder / LOG_NAMES[other]).write_bytes(text if other == "none" else frames.compress(text))
        with pytest.raises(LogError):
            await store.append("s", LogScript().turn().events)
    assert not (folder / harness.log_name).exists()


async def test_every_row_is_an_event_or_a_packed_run(harness: JsonlHarness) -> None:
    """The body holds nothing but what the format knows, newline-ended (JL62)."""
    events = LogScript().turn(calls=["c1"]).events
    async with opened(await harness.open()) as store:
        await store.create(header("s"))
        await store.append("s", events)
    rows = lines_of(harness, "s")
    assert all(row.endswith(b"\n") for row in rows)
    assert b"".join(rows[1:]) == b"".join(line + b"\n" for line in pack_lines(dicts(events)))
    assert types(events)[0] == "turn/start"
