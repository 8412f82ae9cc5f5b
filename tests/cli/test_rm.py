"""`turnlog rm`: asking, erasing, and naming what is left."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

import turnlog
from tests.cli.logs import Cli, command, finished, plant
from tests.cli.test_processes import writer


def test_erasing(cli: Cli, root: Path) -> None:
    """With --yes the session is gone with everything beside it; a second time it is not found."""
    folder = plant(root, "s", finished()).parent
    (folder / "torn-100.bin").write_bytes(b"torn off")
    result = cli("rm", "s", "--yes")
    assert (result.code, result.out, result.err) == (0, "erased s\n", "")
    assert not folder.exists()
    assert cli("rm", "s", "-y").code == 6


def test_without_a_terminal_it_does_not_ask(cli: Cli, root: Path) -> None:
    """In a script --yes is needed; nothing is touched without it."""
    path = plant(root, "s", finished())
    result = cli("rm", "s")
    assert result.code == 2
    assert "--yes" in result.err
    assert path.exists()


def test_needs_the_whole_id(cli: Cli, root: Path) -> None:
    """A prefix erases nothing."""
    plant(root, "session", finished())
    assert cli("rm", "sess", "--yes").code == 6
    assert cli("verify", "session").code == 0


async def _fork(root: Path) -> str:
    async with turnlog.open(f"jsonl:{root}") as store, store.fork("s", child_id="child") as child:
        return child.id


async def test_forks_are_named(cli: Cli, process: Cli, root: Path) -> None:
    """Forks keep what they began with and are named, or go along."""
    plant(root, "s", finished())
    await _fork(root)
    result = process("rm", "s", "--yes", "--json")
    assert json.loads(result.out) == {
        "deleted": ["s"],
        "erased": True,
        "forks": ["child"],
        "attachments": [],
        "kept_attachments": [],
    }
    plant(root, "s", finished())
    shown = process("rm", "s", "--yes")
    assert shown.err == "1 fork keeps the part it began with: child (--with-forks erases forks, too)\n"
    assert process("rm", "child", "--yes", "--quiet").err == ""
    plant(root, "s", finished())
    await _fork(root)
    assert process("rm", "s", "--yes", "--with-forks").out == "erased child\nerased s\n"


async def test_images_are_told(process: Cli, root: Path) -> None:
    """Images that go, and images that others name."""
    from tests.unit.persistence.damaged import IMAGE

    for name in ("a", "b"):
        async with turnlog.open(f"jsonl:{root}") as store:
            block = await store.attachments.put(IMAGE)
            async with store.create(id=name, cwd="/srv/app") as session, session.turn() as turn:
                turn.user([block])
    assert "1 image stay" in process("rm", "a", "--yes").err
    assert process("rm", "b", "--yes").out == "erased b\nerased 1 image\n"


def test_a_busy_session(process: Cli, root: Path) -> None:
    """W1: a session that somebody writes is not erased unless it is taken."""
    with writer(root):
        assert process("rm", "busy", "--yes").code == 5
        assert process("rm", "busy", "--yes", "--takeover").code == 0
        assert process("list", "--json").out == "[]\n"


def test_a_reader_that_holds_content_back(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be erased at once is told and is no success."""
    from turnlog.backends.jsonl.backend import JsonlBackend
    from turnlog.persistence import erasing

    async def held(self: JsonlBackend) -> bool:
        return False

    monkeypatch.setattr(JsonlBackend, "erase_remains", held, raising=False)
    monkeypatch.setattr(erasing, "PAUSE", 0.0)
    plant(root, "s", finished())
    result = cli("rm", "s", "--yes")
    assert result.code == 1
    assert "a reader holds" in result.err


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 130), (b"\x04", 130)])
def test_asking_on_a_terminal(root: Path, answer: bytes, code: int) -> None:
    """On a terminal the question names the session and its forks, and only yes erases."""
    path = plant(root, "s", finished())
    asyncio.run(_fork(root))
    master, slave = pty.openpty()
    with subprocess.Popen(
        command("rm", "s", "--with-forks"),
        env={**os.environ, "TURNLOG_STORE": f"jsonl:{root}"},
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.write(master, answer)
        out, err = process.communicate(timeout=60)
    os.close(master)
    os.close(slave)
    assert b"Erase s and 1 fork of it (child)? [y/N]" in err
    assert process.returncode == code
    assert path.exists() == (code != 0)
    assert (b"erased s" in out) == (code == 0)
