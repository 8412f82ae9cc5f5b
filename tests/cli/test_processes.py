"""The command line as people and scripts run it: exit codes, pipes, signals, terminals."""

from __future__ import annotations

import json
import logging
import os
import pty
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.logs import Cli, Result, command, finished, interrupted, plant, sent_to
from turnlog import SessionHeader
from turnlog.cli import boundary
from turnlog.cli.remarks import remarks
from turnlog.errors import UsageError
from turnlog.events.header import header_line
from turnlog.testing.scripts import LogScript

WRITER = """
import asyncio, sys, turnlog
async def main():
    async with turnlog.open(sys.argv[1]) as store, store.create(id="busy", cwd="/srv/app") as session:
        session.append("turn/start", {"turn": 1})
        await session.flush()
        print("ready", flush=True)
        while True:
            await asyncio.to_thread(sys.stdin.readline)
            session.append("todo/write", {"todos": []})
            await session.flush()
            print("written", flush=True)
asyncio.run(main())
"""


@contextmanager
def writer(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds a session and appends one event for every line it is sent."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, f"jsonl:{root}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        try:
            yield child
        finally:
            child.kill()


def one_line(result: Result, code: int) -> str:
    """Assert that a run failed in the way a user may see it, and return its message."""
    assert result.code == code, result
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert result.err.startswith("turnlog: ")
    assert "Traceback" not in result.err
    return result.err


# -- bad input ---------------------------------------------------------------------------------


def body(change: bytes) -> bytes:
    """Return a good log with its third row replaced; a good row follows."""
    rows = [event.line for event in finished()]
    rows[2] = change
    return b"".join(row + b"\n" for row in rows)


def log_of(root: Path, content: bytes) -> None:
    """Store a log with this body under the id `x`."""
    plant(root, "x", [], tail=content)


DEEP = b'{"type":"acme/x","seq":2,"time":1,"ignorable":true,"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(b"\xef\xbb\xbf" + finished()[2].line, id="bom in a row"),
        pytest.param(finished()[2].line.replace(b"Which", b"Wh\x00ch"), id="nul byte"),
        pytest.param(finished()[2].line.replace(b"Which", b"Wh\xffch"), id="invalid utf-8"),
        pytest.param(DEEP, id="deep nesting"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[1]", id="array"),
        pytest.param(b"", id="empty row"),
    ],
)
def test_damage_is_one_line_and_exit_3(cli: Cli, root: Path, row: bytes) -> None:
    """Whatever a row in the middle holds, every reader says where it is, and `inspect` tells the rest."""
    log_of(root, body(row))
    for name in ("events", "show", "stats"):
        result = cli(name, "x")
        assert (result.code, result.err.count("\n")) == (3, 1)
        assert "line 3" in result.err
    one_line(cli("repair", "x"), 3)
    error = json.loads(cli("repair", "x", "--json").err)["error"]
    assert (error["code"], error["session_id"], error["line"]) == ("corrupt-log", "x", 3)
    assert json.loads(cli("inspect", "x", "--json").out)["damage"][0]["line"] == 3


def test_bom_before_the_header(cli: Cli, root: Path) -> None:
    """A byte order mark makes the header unreadable: damage, not a crash."""
    meta = SessionHeader(id="x", created_at=1, cwd="/srv/app")
    plant(root, "x", finished(), header=b"\xef\xbb\xbf" + header_line(meta))
    one_line(cli("events", "x"), 3)
    assert json.loads(cli("list", "--json").out)[0]["status"] == "corrupt"
    assert cli("inspect", "x", "--json").code == 3


def test_crlf_rows_are_read(cli: Cli, root: Path) -> None:
    """Rows that end in CRLF are rows; no carriage return reaches the output."""
    log_of(root, b"".join(event.line + b"\r\n" for event in finished()))
    result = cli("events", "x")
    assert (result.code, len(result.out.splitlines())) == (0, len(finished()))
    assert "\r" not in result.out


def test_a_row_of_50_megabytes(process: Cli, root: Path) -> None:
    """A huge row is read like any other."""
    log_of(root, body(finished()[2].line.replace(b"Which", b"W" * (50 << 20))))
    result = process("stats", "x", "--json")
    assert (result.code, json.loads(result.out)["events"]) == (0, len(finished()))


@pytest.mark.parametrize("version", [1, 7])
def test_a_newer_format(cli: Cli, root: Path, version: int) -> None:
    """Another version is unsupported, and the message says what to do."""
    line = f'{{"type":"session","version":{version},"id":"x","createdAt":1,"delegationDepth":0}}\n'
    plant(root, "x", finished(), header=line.encode())
    assert "upgrade turnlog" in one_line(cli("show", "x"), 4)
    assert json.loads(cli("show", "x", "--json").err)["error"]["code"] == "unsupported-format"


def test_an_unknown_required_event(cli: Cli, root: Path) -> None:
    """A required type that is not known here is unsupported; the message names it."""
    log_of(root, body(b'{"type":"acme/new","seq":2,"time":1,"data":{}}'))
    assert "acme/new" in one_line(cli("events", "x"), 4)


@pytest.mark.parametrize(
    ("name", "code"), [("../../etc/passwd", 6), ("", 2), ("x" * 4096, 2), ("no/such.jsonl", 6), ("nul\0", 6)]
)
def test_odd_ids(cli: Cli, root: Path, name: str, code: int) -> None:
    """An id is never a way out of the root; an impossible one is a usage error."""
    plant(root, "x", finished())
    for reader in ("show", "inspect", "repair", "fork"):
        message = one_line(cli(reader, name), code)
        assert len(message) < 400


def test_places_that_are_no_store(cli: Cli, tmp_path: Path) -> None:
    """A root that is a file, an unknown scheme, a folder without a scheme, an option that does not exist."""
    file = tmp_path / "file"
    file.write_text("x")
    one_line(cli("list", "--store", f"jsonl:{file}"), 1)
    one_line(cli("list", "--store", "floppy:a"), 2)
    assert "jsonl:PATH" in one_line(cli("list", "--store", str(tmp_path)), 2)
    one_line(cli("list", "--store", f"jsonl:{tmp_path}?speed=9"), 2)
    one_line(cli("show", "x", "--store", f"jsonl:{tmp_path}/none"), 6)
    assert not (tmp_path / "none").exists()


def test_the_other_encoding(cli: Cli, root: Path) -> None:
    """A root of the other encoding is read; asking to write against it is a usage error."""
    plant(root, "x", finished(), encoding="none")
    assert cli("show", "x", "--store", f"jsonl:{root}").code == 0
    assert "mixed" in one_line(cli("fork", "x", "--store", f"jsonl:{root}?compression=zstd"), 2)


def test_a_misspelt_command_is_recognised(cli: Cli) -> None:
    """The nearest command is offered; for anything else there is the help."""
    assert "did you mean 'verify'?" in cli("verfy").err
    assert "No such command 'xyzzy'" in cli("xyzzy").err
    assert cli("verfy").code == 2


def test_usage_errors(cli: Cli) -> None:
    """Unknown commands, options and missing arguments are one line with a pointer to help, also as JSON."""
    for arguments in (
        ["frobnicate"],
        ["show"],
        ["show", "x", "--nope"],
        ["tail", "x", "-n", "many"],
        ["--nope"],
    ):
        assert "--help" in one_line(cli(*arguments), 2)
        error = json.loads(cli(*arguments, "--json").err)["error"]
        assert error["code"] == "usage"


# -- outcomes of a process -----------------------------------------------------------------------


def test_help_and_version(process: Cli) -> None:
    """Without a command there is help; every exit code is in it."""
    assert process("--version").out.startswith("turnlog ")
    for result in (process(), process("-h")):
        assert result.code == 0
        assert (
            "Exit codes: 0 ok, 1 failed, 2 usage, 3 corrupt, 4 unsupported format, 5 busy, 6 not found."
            in result.out
        )


def test_without_the_extra(root: Path) -> None:
    """Where click or rich is missing, one line says what to install."""
    for missing in ("click", "rich"):
        block = f"import sys; sys.modules[{missing!r}] = None"
        code = f"{block}; from turnlog.cli.main import main; sys.exit(main([]))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "pip install 'turnlog[cli]'" in done.stderr


def test_a_reader_that_stops_early(root: Path) -> None:
    """As `head` does: the command ends quietly and with 0."""
    script = LogScript().start().step()
    for _ in range(2000):
        script.add("todo/write", {"todos": [{"content": "x" * 200, "status": "pending"}]})
    plant(root, "x", script.events)
    for name in ("events", "tail", "show"):
        arguments = [
            name,
            "x",
            *(["-n", "9999"] if name == "tail" else ["--events"] if name == "show" else []),
        ]
        with subprocess.Popen(
            command(*arguments, "--store", f"jsonl:{root}"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdout.readline()
            child.stdout.close()
            assert (child.stderr.read(), child.wait()) == (b"", 0)


def test_an_output_that_is_full(root: Path) -> None:
    """A full disk behind the output is an error in one line, also for output that fits into the buffer."""
    plant(root, "x", finished())
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("events", "x", "--store", f"jsonl:{root}"),
            stdout=full,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "turnlog: No space left on device\n")


def test_unexpected_errors(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug is one line with a way to see more, and a traceback only when it is asked for."""

    def broken(*_: object) -> str:
        raise RuntimeError("odd")

    monkeypatch.setattr("turnlog.cli.listing.notice", broken)
    message = one_line(cli("list"), 1)
    assert "unexpected RuntimeError: odd (set TURNLOG_DEBUG=1" in message
    assert json.loads(cli("list", "--json").out) == []
    monkeypatch.setenv("TURNLOG_DEBUG", "1")
    assert "Traceback" in cli("list").err


def test_errors_of_a_group() -> None:
    """Of several failures at once the first is reported, however deep it lies."""
    error = UsageError("no")
    group = ExceptionGroup("closing", [ExceptionGroup("inner", [error]), ValueError("x")])
    assert boundary.describe(error)[0] == 2
    assert boundary._report_group(group, as_json=False) == 2


# -- beside a live writer ------------------------------------------------------------------------


def test_a_session_that_is_being_written(cli: Cli, root: Path) -> None:
    """Readers see it as live and do not wait; a second writer is refused and told whom by; takeover works."""
    with writer(root) as child:
        assert json.loads(cli("list", "--json").out)[0]["status"] == "live"
        found = json.loads(cli("inspect", "busy", "--json").out)
        assert (found["status"], found["closers"], found["turns"]) == ("live", [], 1)
        assert cli("show", "busy").out.endswith("── turn 1 is running\n")
        message = one_line(cli("repair", "busy"), 5)
        assert str(child.pid) in message
        error = json.loads(cli("repair", "busy", "--json").err)["error"]
        assert (error["code"], error["owner"]["pid"]) == ("session-busy", child.pid)
        assert cli("repair", "busy", "--takeover").out == "appended turn/end interrupted\n"


def test_following_another_process(root: Path) -> None:
    """`tail -f` prints what another process makes durable, as it comes; Ctrl-C ends it quietly."""
    with (
        writer(root) as child,
        subprocess.Popen(
            command("tail", "-f", "busy", "--json", "--store", f"jsonl:{root}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as tail,
    ):
        assert child.stdin is not None
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert json.loads(tail.stdout.readline())["type"] == "turn/start"
        for seq in (1, 2):
            child.stdin.write("\n")
            child.stdin.flush()
            row = json.loads(tail.stdout.readline())
            assert (row["seq"], row["type"]) == (seq, "todo/write")
        tail.send_signal(signal.SIGINT)
        assert (tail.wait(30), tail.stderr.read()) == (130, "")


# -- terminals -----------------------------------------------------------------------------------


def on_terminal(root: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Run a command with a pseudo terminal as its output and return what it printed there."""
    parent, child = pty.openpty()
    try:
        base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
        with subprocess.Popen(
            command(*arguments),
            stdout=child,
            stderr=child,
            stdin=subprocess.DEVNULL,
            env={
                **base,
                "TURNLOG_STORE": f"jsonl:{root}",
                "TERM": "xterm-256color",
                "COLUMNS": "90",
                **(env or {}),
            },
        ) as process:
            os.close(child)
            printed = sent_to(parent)
            process.wait()
        return printed.decode()
    finally:
        os.close(parent)


def test_colours_only_where_they_are_wanted(root: Path, process: Cli) -> None:
    """A terminal gets colours, unless NO_COLOR says otherwise; a pipe never does."""
    plant(root, "x", interrupted())
    assert "\x1b[33m" in on_terminal(root, "list")
    plain = on_terminal(root, "list", env={"NO_COLOR": "1"})
    assert "interrupted" in plain
    assert "\x1b[3" not in plain
    assert "\x1b" not in process("list").out


def test_rows_fit_a_terminal(root: Path) -> None:
    """Long prose is wrapped to the terminal with its indentation."""
    plant(root, "x", LogScript().start().step().user("word " * 100).events)
    rows = on_terminal(root, "show", "x", env={"NO_COLOR": "1"}).replace("\r\n", "\n").split("\n")
    assert all(len(row) <= 90 for row in rows)
    assert sum(row.startswith("  word") for row in rows) > 4


def test_a_long_log_shows_a_bar_on_a_terminal_only(root: Path, process: Cli) -> None:
    """Reading a long log is seen to go on; the bar is gone afterwards, and never is in a pipe."""
    plant(root, "x", LogScript().start().step().chunks(*["x"] * 100_100).events)
    assert "of 100,102 events" in on_terminal(root, "stats", "x")
    assert "of 100,102 events" not in on_terminal(root, "stats", "x", "-q")
    result = process("stats", "x")
    assert (result.code, result.err) == (0, "")
    assert "100,102 (100 % streamed chunks)" in result.out


def test_text_in_a_pipe_is_utf_8_whatever_the_locale(root: Path, process: Cli) -> None:
    """JSON stays JSON, and prose stays text, where the locale knows ASCII only."""
    plant(root, "x", LogScript().start().step().user("naïve ✓ \ud800").events)
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    message = json.loads(process("show", "x", "--messages", "--json", env=env).out)[0]
    assert message["content"][0]["text"] == "naïve ✓ \ud800"
    assert "naïve ✓ \\ud800" in process("show", "x", env=env).out


def test_warnings_of_the_library_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Log records and warnings come out as single safe lines, as JSON, or not at all."""
    for as_json, quiet, shown in (
        (False, False, "turnlog: warning: a\\x1b\nturnlog: warning: b\n"),
        (True, False, '{"warning":{"message":"a\\u001b"}}\n{"warning":{"message":"b"}}\n'),
        (False, True, ""),
    ):
        with warnings.catch_warnings(action="always"), remarks(as_json=as_json, quiet=quiet):
            logging.getLogger("turnlog.x").warning("a\x1b", exc_info=ValueError("no"))
            warnings.warn("b", stacklevel=1)
        assert capsys.readouterr().err == shown


@pytest.mark.parametrize("name", ["record_a_turn", "resume_after_a_kill", "own_event_type"])
def test_examples_run(name: str) -> None:
    """Each example does what it says, as a process of its own."""
    script = Path(__file__).parents[2] / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = {
        "record_a_turn": "events are durable",
        "resume_after_a_kill": "a repair will append: tool/result, step/end, turn/end",
        "own_event_type": "Weather(place='balcony', celsius=21.5)",
    }
    assert expected[name] in done.stdout


# -- the demo ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_demo(process: Cli, tmp_path: Path, compression: str) -> None:
    """The main job from real processes, in both encodings; nothing is left behind."""
    result = process("demo", "--compression", compression, env={"TMPDIR": str(tmp_path)})
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n  ✓ ") == 11
    assert "all 11 claims hold" in result.out
    assert "✗ NOT SO" not in result.out
    assert "\x1b" not in result.out
    for shown in (
        "durable      seq 0",
        "c-2 TOOL_OUTCOME_UNKNOWN",
        "c-3 TOOL_NOT_STARTED",
        "status       interrupted",
    ):
        assert shown in result.out
    assert list(tmp_path.iterdir()) == []


def test_demo_in_a_given_store(process: Cli, cli: Cli, root: Path) -> None:
    """With --store the finished session stays there, as a valid log of two turns."""
    result = process("demo", "--store", f"jsonl:{root}")
    assert result.code == 0
    (entry,) = json.loads(cli("list", "--json").out)
    assert (entry["status"], entry["turns"]) == ("ok", 2)
    assert f"show {entry['id']}" in result.out.splitlines()[-1]
    assert "✗" not in cli("stats", entry["id"]).out


def test_demo_in_a_database(process: Cli, tmp_path: Path) -> None:
    """The same story on SQLite, where other sessions share the files."""
    result = process("demo", "--store", f"sqlite:{tmp_path / 'sessions.db'}")
    assert result.code == 0
    assert "inspecting changed nothing that is stored" in result.out
    assert "all 11 claims hold" in result.out


def test_demo_says_when_a_claim_does_not_hold(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is not so is marked, counted, and makes the command fail."""
    monkeypatch.setattr("turnlog.cli.demo.CLOSERS", ["step/end"])
    result = cli("demo")
    assert result.code == 1
    assert "✗ NOT SO: the call that was running" in result.out
    assert result.out.splitlines()[-1] == "✗ 1 of 11 claims did not hold"


def test_demo_in_a_place_that_takes_no_files(process: Cli) -> None:
    """When the recording process cannot write, its reason comes as one line and nothing else."""
    result = process("demo", "--store", "jsonl:/proc/turnlog-demo")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert result.err.startswith("turnlog: the recording process failed: the jsonl backend failed")


def test_demo_refuses_what_it_cannot_do(cli: Cli, root: Path) -> None:
    """A memory store dies with its process; the encoding of a given store is in its URL."""
    for arguments in (["--store", "memory:"], ["--store", f"jsonl:{root}", "--compression", "none"]):
        one_line(cli("demo", *arguments), 2)
    assert not root.exists()
