"""`turnlog copy`: between stores, byte for byte where it can be, taken up again, errors one by one."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.cli.logs import Cli, command, finished, interrupted, plant, sent_to


@pytest.fixture
def target(tmp_path: Path) -> str:
    """Return the URL of a plain root that is not there."""
    return f"jsonl:{tmp_path / 'target'}?compression=none"


def test_a_whole_store(cli: Cli, root: Path, target: str, tmp_path: Path) -> None:
    """Every session arrives, plain files byte for byte; a second run has nothing to do."""
    files = [plant(root, "a", finished()), plant(root, "b", interrupted())]
    result = cli("copy", "--all", "--to", target)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        f"copied      a  {len(finished())} events",
        f"copied      b  {len(interrupted())} events",
    ]
    for file in files:
        assert (tmp_path / "target" / file.relative_to(root)).read_bytes() == file.read_bytes()
    again = [json.loads(line) for line in cli("copy", "--all", "--to", target, "--json").out.splitlines()]
    assert [(copied["appended"], copied["error"]) for copied in again] == [(0, None), (0, None)]
    assert "0 of them new" in cli("copy", "a", "--to", target).out


def test_named_sessions(cli: Cli, root: Path, target: str) -> None:
    """Prefixes and files name sessions here, too."""
    path = plant(root, "alpha", finished())
    plant(root, "beta", finished())
    result = cli("copy", "alp", path, "--to", target)
    assert result.code == 0
    assert result.out.count("copied      alpha") == 2
    assert [entry["id"] for entry in json.loads(cli("--store", target, "list", "--json").out)] == ["alpha"]


def test_one_damaged_session(cli: Cli, root: Path, target: str) -> None:
    """It is named with its error and is the exit code; the others are copied."""
    rows = [event.line for event in finished()]
    rows[2] = b"#"
    plant(root, "bad", [], tail=b"".join(row + b"\n" for row in rows))
    plant(root, "good", finished())
    result = cli("copy", "--all", "--to", target)
    assert result.code == 3
    assert 'not copied  bad  session "bad" is damaged' in result.out
    assert "copied      good" in result.out
    copied = [json.loads(line) for line in cli("copy", "--all", "--to", target, "--json").out.splitlines()]
    assert copied[0]["error"]["code"] == "corrupt-log"
    assert copied[0]["error"]["line"] == 3


def test_an_unfinished_write_and_missing_images(cli: Cli, root: Path, target: str) -> None:
    """What is not copied is told."""
    from turnlog.testing.scripts import LogScript

    block = {"type": "image", "attachment": {"attachmentId": f"sha256:{'0' * 64}"}}
    script = LogScript().start().step()
    message = {"content": [block], "source": {"kind": "user"}, "role": "user", "id": "m"}
    script.add("user/message", message, surfaceOp="append")
    plant(root, "s", script.events, tail=b'{"type":"tu')
    shown = cli("copy", "s", "--to", target).out
    assert "11 bytes of an unfinished write at the end left out" in shown
    assert "1 image missing or damaged in the source" in shown


def test_to_itself(cli: Cli, root: Path) -> None:
    """A store is not copied into itself."""
    plant(root, "s", finished())
    assert cli("copy", "--all", "--to", f"jsonl:{root}").code == 2


@pytest.mark.parametrize("arguments", [[], ["x", "--all"]])
def test_ids_or_all(cli: Cli, target: str, arguments: list[str]) -> None:
    """Either ids or the whole store."""
    assert cli("copy", *arguments, "--to", target).code == 2


def test_a_bar_on_a_terminal_only(cli: Cli, root: Path, target: str, tmp_path: Path) -> None:
    """Progress goes to a terminal's standard error, and nowhere else."""
    for number in range(3):
        plant(root, f"s-{number}", finished())
    master, slave = pty.openpty()
    with subprocess.Popen(
        command("copy", "--all", "--to", target),
        env={**os.environ, "TURNLOG_STORE": f"jsonl:{root}", "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=slave,
    ) as process:
        os.close(slave)
        seen = sent_to(master)
        out = process.communicate()[0]
    os.close(master)
    assert process.returncode == 0
    assert b"3 of 3 sessions" in seen
    assert out.count(b"copied") == 3
    assert b"sessions" not in out
