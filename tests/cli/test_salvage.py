"""`turnlog salvage`: what is saved, what is lost, and where it goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.logs import Cli, finished, plant, snapshot
from turnlog import SessionEvent, SessionHeader
from turnlog.events.header import header_line
from turnlog.testing.scripts import LogScript


@pytest.fixture
def bad(root: Path) -> Path:
    """Store a log whose third row cannot be read."""
    rows = [event.line for event in finished()]
    rows[2] = b"#" + rows[2][1:]
    return plant(root, "bad", [], tail=b"".join(row + b"\n" for row in rows))


def test_into_another_store(cli: Cli, root: Path, bad: Path, tmp_path: Path) -> None:
    """The new id first, then what was saved, lost and damaged; the original stays as it is."""
    before = snapshot(root)
    target = f"jsonl:{tmp_path / 'saved'}"
    result = cli("salvage", "bad", "--to", target)
    count = len(finished())
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == "bad"
    assert lines[1] == f"saved   {count - 1} events"
    assert lines[2] == "lost    1 event, seq 2"
    assert lines[3].startswith("damage  unparsable at line 3, byte ")
    assert snapshot(root) == before
    assert cli("--store", target, "verify", "bad").code == 0
    events = [json.loads(line) for line in cli("--store", target, "events", "bad").out.splitlines()]
    assert events[2] == {
        "type": "turnlog/lost",
        "seq": 2,
        "time": events[1]["time"],
        "data": {"first": 2, "last": 2},
        "ignorable": True,
    }


def test_json(cli: Cli, bad: Path, tmp_path: Path) -> None:
    """Every fact for programs."""
    value = json.loads(cli("salvage", "bad", "--to", f"jsonl:{tmp_path / 'saved'}", "--json").out)
    assert (value["id"], value["new_id"], value["lost"]) == ("bad", "bad", 1)
    assert value["missing"] == [{"from": 2, "to": 2}]
    assert value["findings"][0]["line"] == 3


def test_into_the_same_store(cli: Cli, root: Path, bad: Path) -> None:
    """The same store takes the new session under another id, a given one included."""
    url = f"jsonl:{root}"
    new = cli("salvage", "bad", "--to", url).out.splitlines()[0]
    assert new != "bad"
    assert cli("verify", new).code == 0
    assert cli("salvage", "bad", "--to", url, "--id", "mine").out.splitlines()[0] == "mine"
    taken = cli("salvage", "bad", "--to", url, "--id", "mine")
    assert (taken.code, taken.err.count("\n")) == (1, 1)


def test_the_prefix(cli: Cli, root: Path, tmp_path: Path) -> None:
    """Only what stands before the first gap."""
    rows = [event.line for event in finished()]
    first_turn = len(LogScript().turn(calls=["c-1"]).events)
    del rows[first_turn + 1]
    plant(root, "gap", [], tail=b"".join(row + b"\n" for row in rows))
    target = f"jsonl:{tmp_path / 'saved'}"
    result = cli("salvage", "gap", "--to", target, "--prefix")
    assert result.out.splitlines()[1] == f"saved   {first_turn} events"
    assert "seq-gap at byte" in result.out


def test_a_lost_header_and_events_set_aside(cli: Cli, root: Path, tmp_path: Path) -> None:
    """Both are told."""
    meta = header_line(SessionHeader(id="s", created_at=1, cwd="/srv/app"))
    needed = LogScript().start().add("acme/needed", {}).end().events
    plant(root, "s", needed, header=b"#" + meta[1:])
    shown = cli("salvage", "s", "--to", f"jsonl:{tmp_path / 'saved'}").out
    assert "lost    the header; the new one holds the id and a time only" in shown
    assert "aside   1 event, kept whole; no session takes it as it stands" in shown


def test_long_reports_are_cut(cli: Cli, root: Path, tmp_path: Path) -> None:
    """Twenty gaps and findings, and the number of the others."""
    rows = [event.line if event.seq % 2 else b"#" for event in _notes(60)]
    plant(root, "s", [], tail=b"".join(row + b"\n" for row in rows))
    shown = cli("salvage", "s", "--to", f"jsonl:{tmp_path / 'saved'}").out
    assert "… 10 more gaps" in shown
    assert "… 10 more findings" in shown


def _notes(count: int) -> list[SessionEvent]:
    script = LogScript()
    for number in range(count):
        script.add("feedback/record", {"text": str(number)})
    return script.events


def test_needs_the_whole_id(cli: Cli, bad: Path, tmp_path: Path) -> None:
    """A prefix is not enough, and an unknown id is not found."""
    assert cli("salvage", "ba", "--to", f"jsonl:{tmp_path / 'saved'}").code == 6
    assert not (tmp_path / "saved").exists()


def test_needs_a_target(cli: Cli, bad: Path) -> None:
    """Without --to nothing is done."""
    assert cli("salvage", "bad").code == 2
