"""Each command on logs of every kind, in this process."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Literal

import click
import pytest

import turnlog
from tests.cli.logs import Cli, finished, interrupted, plant, snapshot
from turnlog import SessionEvent
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.cli.app import cli as app
from turnlog.cli.terminal import Screen
from turnlog.events import frames
from turnlog.testing.scripts import LogScript

READERS = ("show", "events", "tail", "inspect", "stats")
EXPORTS = ("messages", "jsonl", "markdown")


@pytest.fixture(params=["none", "zstd"])
def encoding(request: pytest.FixtureRequest) -> Literal["none", "zstd"]:
    """Return one encoding after the other."""
    value: Literal["none", "zstd"] = request.param
    return value


# -- list --------------------------------------------------------------------------------------


def test_list_gives_every_session_a_status(cli: Cli, root: Path) -> None:
    """Good, interrupted, torn, corrupt and unsupported logs stand side by side (B4)."""
    plant(root, "good", finished())
    plant(root, "cut", interrupted())
    plant(root, "torn", finished(), tail=b'{"type":"turn/st')
    plant(root, "bad", finished(), header=b"not a header\n")
    plant(
        root,
        "new",
        [],
        header=b'{"type":"session","version":9,"id":"new","createdAt":1,"delegationDepth":0}\n',
    )
    result = cli("list", "--json")
    assert result.code == 0
    assert {entry["id"]: entry["status"] for entry in json.loads(result.out)} == {
        "good": "ok",
        "cut": "interrupted",
        "torn": "torn",
        "bad": "corrupt",
        "new": "unsupported",
    }
    table = cli("list")
    assert table.out.split("\n")[0].split() == [
        "ID",
        "STATUS",
        "TITLE",
        "TURNS",
        "SIZE",
        "LAST",
        "ACTIVITY",
        "CWD",
    ]
    assert len(table.out.splitlines()) == 6


def test_list_is_newest_first_and_cut(cli: Cli, root: Path) -> None:
    """The order is that of the last activity; the rest is announced."""
    for number, name in enumerate(("a", "b", "c")):
        os.utime(plant(root, name, finished()), (1_700_000_000 + number, 1_700_000_000 + number))
    assert [entry["id"] for entry in json.loads(cli("list", "--json").out)] == ["c", "b", "a"]
    result = cli("list", "--limit", 2)
    assert [row.split()[0] for row in result.out.splitlines()] == ["ID", "c", "b"]
    assert result.err == "1 more, --limit 3 shows all\n"
    assert cli("list", "--limit", 2, "-q").err == ""


def test_list_filters(cli: Cli, root: Path) -> None:
    """By status and by working directory."""
    plant(root, "a", finished(), cwd="/x")
    plant(root, "b", interrupted(), cwd="/y")
    assert [entry["id"] for entry in json.loads(cli("list", "--json", "--cwd", "/x").out)] == ["a"]
    assert [entry["id"] for entry in json.loads(cli("list", "--json", "--status", "interrupted").out)] == [
        "b"
    ]
    assert cli("list", "--status", "fine").code == 2


def test_list_of_nothing(cli: Cli, root: Path) -> None:
    """A root that does not exist holds no sessions, and is not made by looking."""
    result = cli("list")
    assert (result.code, result.out, result.err) == (0, "", f"no sessions in jsonl:{root}\n")
    assert json.loads(cli("list", "--json").out) == []
    assert not root.exists()


# -- inspect -----------------------------------------------------------------------------------


def test_inspect_json_is_exact(cli: Cli, root: Path, encoding: Literal["none", "zstd"]) -> None:
    """The keys and their order are an interface."""
    plant(root, "cut", interrupted(), encoding=encoding)
    result = cli("inspect", "cut", "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert list(found) == ["header", "event_count", "status", "closers", "torn", "damage", "turns", "steps"]
    assert found == {
        "header": {
            "version": 0,
            "id": "cut",
            "createdAt": 1_700_000_000_000,
            "cwd": "/srv/app",
            "delegationDepth": 0,
        },
        "event_count": len(interrupted()),
        "status": "interrupted",
        "closers": ["tool/result", "tool/result", "step/end", "turn/end"],
        "torn": None,
        "damage": [],
        "turns": 2,
        "steps": 2,
    }


def test_inspect_a_torn_log(cli: Cli, root: Path) -> None:
    """A torn tail is no damage: exit 0, and its place and size are given."""
    path = plant(root, "torn", finished())
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b'{"type":"turn/st')
    result = cli("inspect", "torn", "--json")
    found = json.loads(result.out)
    assert (result.code, found["status"], found["event_count"]) == (0, "torn", len(finished()))
    assert found["torn"] == {"offset": size, "bytes": 16, "recovered_events": 0}
    assert f"the last 16 bytes, from byte {size:,} on" in cli("inspect", "torn").out


def test_inspect_a_damaged_log(cli: Cli, root: Path) -> None:
    """Damage in the middle: exit 3, the JSON all the same, with the place and what can be read."""
    path = plant(root, "bad", finished())
    rows = path.read_bytes().split(b"\n")
    rows[3] = b"#" * len(rows[3])
    path.write_bytes(b"\n".join(rows))
    result = cli("inspect", "bad", "--json")
    found = json.loads(result.out)
    assert (result.code, result.err, found["status"]) == (3, "", "corrupt")
    # The line is counted in the body, without the header's.
    first = found["damage"][0]
    assert (first["line"], first["offset"]) == (
        3,
        sum(len(row) + 1 for row in rows[:3]),
    )
    assert found["header"]["id"] == "bad"
    assert found["event_count"] > 0
    shown = cli("inspect", "bad")
    assert shown.code == 3
    assert "at line 3" in shown.out


def test_inspect_a_torn_frame(cli: Cli, root: Path) -> None:
    """Whole blocks of a torn zstd frame are counted as saved, and a repair appends what they hold."""
    noise = random.Random(7).randbytes(150_000).hex()
    script = LogScript()
    for part in range(3):
        script.add("todo/write", {"todos": [{"content": noise[part::3], "status": "pending"}]})
    frame = frames.compress(b"".join(event.line + b"\n" for event in script.events))
    path = plant(root, "torn", [], encoding="zstd")
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + frame[: len(frame) * 9 // 10])
    found = json.loads(cli("inspect", "torn", "--json").out)
    assert (found["status"], found["event_count"]) == ("torn", 2)
    assert found["torn"] == {"offset": size, "bytes": len(frame) * 9 // 10, "recovered_events": 2}
    assert "2 events in it can be saved" in cli("inspect", "torn").out
    assert json.loads(cli("repair", "torn", "--json").out)["event_count"] == 2
    rows = [json.loads(row) for row in cli("events", "torn").out.splitlines()]
    assert rows == [event.to_dict() for event in script.events[:2]]


def test_inspect_damage_where_the_backend_cannot_scan(
    cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the optional hook the error itself says where the damage is."""
    path = plant(root, "bad", finished())
    path.write_bytes(path.read_bytes().replace(b'"step/start"', b'"step/start\x00', 1))
    monkeypatch.setattr(JsonlBackend, "scan_stored", None)
    result = cli("inspect", "bad", "--json")
    assert result.code == 3
    assert [place["line"] for place in json.loads(result.out)["damage"]] == [2]


def test_inspect_an_unsupported_log(cli: Cli, root: Path) -> None:
    """A required event of an unknown type: exit 4, and the reason is said."""
    event = SessionEvent.from_dict({"type": "acme/new", "seq": 0, "time": 1, "data": {}})
    plant(root, "new", [event])
    result = cli("inspect", "new", "--json")
    assert (result.code, json.loads(result.out)["status"]) == (4, "unsupported")
    assert "acme/new" in cli("inspect", "new").out


# -- reading -----------------------------------------------------------------------------------


def test_events_are_the_stored_ones(cli: Cli, root: Path, encoding: Literal["none", "zstd"]) -> None:
    """One JSON line each, without the closers that a repair would add; `--from` begins later."""
    plant(root, "cut", interrupted(), encoding=encoding)
    lines = cli("events", "cut").out.splitlines()
    assert [json.loads(row) for row in lines] == [event.to_dict() for event in interrupted()]
    assert cli("events", "cut", "--from", 5).out.splitlines() == lines[5:]
    assert cli("events", "cut", "--from", 10_000).out == ""


def test_show(cli: Cli, root: Path) -> None:
    """The conversation, its events and its messages, for people and for programs."""
    plant(root, "cut", interrupted())
    shown = cli("show", "cut").out
    assert shown.startswith("cut  interrupted · 2 turns · ")
    assert shown.endswith("── turn 2 was interrupted and is not closed yet\n")
    value = json.loads(cli("show", "cut", "--json").out)
    assert (value["id"], value["status"], len(value["turns"])) == ("cut", "interrupted", 2)
    assert json.loads(cli("show", "cut", "--events", "--json").out) == [
        event.to_dict() for event in interrupted()
    ]
    assert (
        len(cli("show", "cut", "--events").out.splitlines()) == len(interrupted()) - 2
    )  # three chunks are one row
    closed = [*interrupted(), *turnlog.interrupted_turn_closers(interrupted())]
    assert json.loads(cli("show", "cut", "--messages", "--json").out) == turnlog.derive_messages(closed)
    assert (
        "tool  tool c-2" in cli("show", "cut", "--messages").out
        or "user  tool c-2" in cli("show", "cut", "--messages").out
    )
    assert cli("show", "cut", "--events", "--messages").code == 2


def test_tail(cli: Cli, root: Path) -> None:
    """The last events, one line each; as JSON the very lines of `events`."""
    plant(root, "s", finished())
    assert [row.split()[0] for row in cli("tail", "s", "-n", 2).out.splitlines()] == [
        str(len(finished()) - 2),
        str(len(finished()) - 1),
    ]
    assert cli("tail", "s", "-n", 3, "--json").out.splitlines() == cli("events", "s").out.splitlines()[-3:]
    assert cli("tail", "s", "-n", 0).out == ""


def test_stats(cli: Cli, root: Path) -> None:
    """The figures of one session."""
    path = plant(root, "s", finished())
    value = json.loads(cli("stats", "s", "--json").out)
    assert (value["turns"], value["steps"], value["tool_calls"], value["bytes"]) == (
        2,
        2,
        1,
        path.stat().st_size,
    )
    assert "2 (2 completed)" in cli("stats", "s").out


def test_export(cli: Cli, root: Path, tmp_path: Path, encoding: Literal["none", "zstd"]) -> None:
    """Messages of an interrupted log are balanced; the plain log loads again as the same events."""
    plant(root, "cut", interrupted(), encoding=encoding)
    closed = [*interrupted(), *turnlog.interrupted_turn_closers(interrupted())]
    assert json.loads(cli("export", "cut", "--format", "messages").out) == turnlog.derive_messages(closed)
    assert cli("export", "cut", "--format", "markdown").out.startswith("# Session cut\n")
    out = tmp_path / "out.jsonl"
    assert cli("export", "cut", "--format", "jsonl", "-o", out).code == 0
    assert out.read_text() == cli("export", "cut", "--format", "jsonl").out
    assert cli("events", out).out == cli("events", "cut").out
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.jsonl"]


def test_export_into_a_file_is_whole_or_nothing(cli: Cli, root: Path, tmp_path: Path) -> None:
    """A failure leaves what was there before; a folder is refused."""
    path = plant(root, "bad", finished())
    path.write_bytes(path.read_bytes().replace(b'"turn/start"', b'"turn/st\xff"', 1))
    out = tmp_path / "out"
    out.write_text("old")
    assert cli("export", "bad", "--format", "jsonl", "-o", out).code == 3
    assert out.read_text() == "old"
    assert cli("export", "bad", "--format", "jsonl", "-o", tmp_path).code == 2
    assert cli("export", "bad", "--format", "jsonl", "-o", tmp_path / "no" / "where").code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]


@pytest.mark.parametrize("state", ["finished", "interrupted", "torn", "damaged"])
def test_readers_write_nothing(cli: Cli, root: Path, state: str) -> None:
    """No reading command changes, adds or touches a file, whatever state the log is in (R3)."""
    path = plant(root, "s", finished() if state != "interrupted" else interrupted())
    if state == "torn":
        path.write_bytes(path.read_bytes() + b'{"type":')
    if state == "damaged":
        path.write_bytes(path.read_bytes().replace(b'"step/start"', b'"step/start\x00', 1))
    before = snapshot(root)
    for name in READERS:
        cli(name, "s")
    for form in EXPORTS:
        cli("export", "s", "--format", form)
    cli("list")
    assert snapshot(root) == before


# -- writing -----------------------------------------------------------------------------------


def test_repair_once(cli: Cli, root: Path, encoding: Literal["none", "zstd"]) -> None:
    """The closers are appended; a second repair says that there is nothing, and changes no log byte."""
    path = plant(root, "cut", interrupted(), encoding=encoding)
    before = path.read_bytes()
    result = cli("repair", "cut")
    assert result.out.splitlines() == [
        "appended tool/result c-1 TOOL_OUTCOME_UNKNOWN",
        "appended tool/result c-2 TOOL_NOT_STARTED",
        "appended step/end",
        "appended turn/end interrupted",
    ]
    after = path.read_bytes()
    assert after.startswith(before)
    again = cli("repair", "cut")
    assert (again.code, again.out, path.read_bytes()) == (0, "nothing to repair\n", after)
    assert json.loads(cli("inspect", "cut", "--json").out)["status"] == "ok"


def test_repair_cuts_a_torn_tail(cli: Cli, root: Path) -> None:
    """The torn bytes are kept aside, the log is what it was before them."""
    path = plant(root, "torn", finished())
    good = path.read_bytes()
    path.write_bytes(good + b'{"type":"turn/st')
    value = json.loads(cli("repair", "torn", "--json").out)
    assert value == {"id": "torn", "cut_bytes": 16, "appended": [], "event_count": len(finished())}
    assert path.read_bytes() == good
    assert (path.parent / f"torn-{len(good)}.bin").read_bytes() == b'{"type":"turn/st'


def test_repair_takes_no_prefix(cli: Cli, root: Path) -> None:
    """A writing command wants the whole id."""
    plant(root, "cut-1", interrupted())
    result = cli("repair", "cut")
    assert result.code == 6
    assert "a whole id is needed" in result.err


def test_fork(cli: Cli, root: Path) -> None:
    """The child begins with the source's events up to the end of the turn; the source does not change."""
    path = plant(root, "s", finished())
    before = path.read_bytes()
    child = cli("fork", "s", "--at", 1).out.strip()
    end = next(event.seq for event in finished() if event.type == "turn/end")
    rows = [json.loads(row) for row in cli("events", child).out.splitlines()]
    assert rows[: end + 1] == [event.to_dict() for event in finished()[: end + 1]]
    assert [row["type"] for row in rows[end + 1 :]] in ([], ["session/end-seed"])
    header = json.loads(cli("inspect", child, "--json").out)["header"]
    assert (header["parentSession"], header["seedLength"], header["cwd"]) == ("s", end + 1, "/srv/app")
    assert path.read_bytes() == before
    value = json.loads(cli("fork", "s", "--json").out)
    assert (value["parent"], value["inherited_events"]) == ("s", len(finished()))
    result = cli("fork", "s", "--at", 3)
    assert result.code == 2
    assert "has not ended" in result.err


# -- ids ---------------------------------------------------------------------------------------


def test_prefixes(cli: Cli, root: Path) -> None:
    """A unique prefix will do, an exact id wins over longer ones, an ambiguous one names candidates."""
    for name in ("ab", "abc", "abd", "x1"):
        plant(root, name, finished())
    assert cli("show", "x").out.startswith("x1 ")
    assert cli("show", "ab").out.startswith("ab ")
    result = cli("show", "a")
    assert (result.code, result.out) == (2, "")
    assert result.err == f'turnlog: "a" begins 3 ids in jsonl:{root}: ab, abc, abd\n'


def test_paths(cli: Cli, root: Path, tmp_path: Path, encoding: Literal["none", "zstd"]) -> None:
    """A log file in a root opens that root in place, its folder too; one from elsewhere is only read."""
    path = plant(root, "a/b", interrupted(), encoding=encoding)
    elsewhere = tmp_path / "mail.jsonl"
    elsewhere.write_bytes(path.read_bytes())
    expected = cli("events", "a/b").out
    store = f"jsonl:{tmp_path / 'other'}"
    for name in (path, path.parent, elsewhere):
        assert cli("events", name, "--store", store).out == expected
    before = elsewhere.read_bytes()
    refused = cli("repair", elsewhere)
    assert refused.code == 2
    assert "only read" in refused.err
    assert elsewhere.read_bytes() == before
    assert cli("repair", path, "--store", store).code == 0
    assert len(cli("events", path).out.splitlines()) == len(interrupted()) + 4
    assert not (tmp_path / "other").exists()


def test_damage_in_a_file_from_elsewhere_names_that_file(cli: Cli, root: Path, tmp_path: Path) -> None:
    """The message is about the file that was given, not about the copy that was read."""
    path = plant(root, "s", finished())
    elsewhere = tmp_path / "mail.jsonl"
    elsewhere.write_bytes(path.read_bytes().replace(b'"step/start"', b'"step/start\x00', 1))
    result = cli("events", elsewhere, "--json")
    error = json.loads(result.err)["error"]
    assert (result.code, error["code"], error["path"]) == (3, "corrupt-log", str(elsewhere))
    looked = cli("inspect", elsewhere)
    assert looked.code == 3
    assert "mail.jsonl" in looked.out
    assert "turnlog-" not in looked.out, "the temporary copy is nobody's business"


# -- the documentation ---------------------------------------------------------------------------


def test_every_command_and_option_is_documented() -> None:
    """docs/cli.md names each command and each of its options; each has help of its own."""
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    context = click.Context(app)
    for name in app.list_commands(context):
        command = app.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert f"`turnlog {command.name}" in page
        assert command.help
        for option in command.params:
            if option.param_type_name == "option":
                assert any(known in page for known in option.opts), f"{command.name} {option.opts}"


def test_output_is_safe_on_a_terminal(cli: Cli, root: Path) -> None:
    """No command lets a control character of a log through."""
    hostile = "\x1b]0;x\x07\x9b2J\u202e\ud800[red]"
    script = LogScript().start().step().user(hostile).assistant(hostile, calls=[hostile]).call(hostile)
    script.result(hostile, hostile).add(
        "session/title", {"title": hostile, "messageSeqs": [], "source": {"kind": "user"}}
    )
    plant(root, "s", script.events, cwd="/\x1b[31m")
    runs = [cli(name, "s") for name in READERS] + [cli("export", "s", "--format", form) for form in EXPORTS]
    runs += [
        cli("show", "s", "--events"),
        cli("show", "s", "--messages"),
        cli("list"),
        cli("show", "\x1b[31m"),
    ]
    for run in runs:
        for stream in (run.out, run.err):
            assert not [c for c in stream if c in "\x1b\x07\x9b\u202e" or "\ud800" <= c <= "\udfff"]
        assert run.out or run.err


def test_a_table_is_cut_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, cli: Cli, root: Path) -> None:
    """On a terminal long cells shrink to what fits; in a pipe they are whole."""
    plant(root, "s", finished(), cwd="/" + "x" * 200)
    assert "x" * 200 in cli("list").out
    monkeypatch.setattr(Screen, "__init__", _terminal_of_60(Screen.__init__))
    rows = cli("list").out.splitlines()
    assert all(len(row) <= 70 for row in rows)
    assert "…" in rows[1]


def _terminal_of_60(original: object) -> object:
    def init(self: Screen, stream: object) -> None:
        assert callable(original)
        original(self, stream)
        self.console.width = 60
        self.is_terminal = True

    return init
