"""Databases that cannot be used, from the command line: one line of error, and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import turnlog
from tests.faults.media import fill_up, small_file_system, unwritable
from turnlog.backends.sqlite import schema
from turnlog.cli.boundary import CORRUPT, FAILED, OK, UNSUPPORTED
from turnlog.cli.main import main

Spoil = Callable[[Path], None]


async def fill(path: Path, size: int = 1000) -> None:
    """Store a session of three turns."""
    async with turnlog.open(f"sqlite:{path}") as store, await store.create(id="s") as session:
        for turn in (1, 2, 3):
            session.append("turn/start", {"turn": turn})
            session.append("feedback/record", {"text": os.urandom(size).hex()})
            session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
            await session.flush()


def text_file(path: Path) -> None:
    """Put a text where the database was."""
    path.write_text("dear diary\n")


def other_program(path: Path) -> None:
    """Put another program's database where ours was."""
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("create table places(url)")
    db.close()


def newer(path: Path) -> None:
    """Make the database one of a later release."""
    db = sqlite3.connect(path)
    db.execute(f"pragma user_version = {schema.VERSION + 1}")
    db.close()


def cut_short(path: Path) -> None:
    """Cut the database in the middle."""
    os.truncate(path, path.stat().st_size // 2)


def folder(path: Path) -> None:
    """Put a folder where the database was."""
    path.unlink()
    path.mkdir()


def zero_page(path: Path) -> None:
    """Lose the page that holds the root of a table."""
    data = bytearray(path.read_bytes())
    data[4096:8192] = bytes(4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        (text_file, FAILED, "no SQLite database"),
        (other_program, FAILED, "belongs to another program"),
        (newer, UNSUPPORTED, "upgrade turnlog"),
        (cut_short, CORRUPT, "database file is damaged"),
        (zero_page, CORRUPT, "database file is damaged"),
        (folder, FAILED, "it is a folder"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_unusable_database_has_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Spoil, code: int, said: str
) -> None:
    """Commands that read say in one line what is wrong and where, and end with the code for it."""
    path = tmp_path / "sessions.db"
    asyncio.run(fill(path))
    spoil(path)
    for command in (["list"], ["inspect", "s"], ["events", "s"]):
        assert main(["--store", f"sqlite:{path}", *command]) == code, command
        out = capsys.readouterr()
        assert out.out == ""
        assert len(out.err.splitlines()) == 1
        assert said in out.err
    assert main(["--store", f"sqlite:{path}", "--json", "list"]) == code
    assert said in json.loads(capsys.readouterr().err)["error"]["message"]


def test_a_damaged_frame_is_named_by_its_seq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A database has no bytes to point at: what is damaged is the batch that begins with a seq."""
    path = tmp_path / "sessions.db"
    asyncio.run(fill(path))
    db = sqlite3.connect(path)
    db.execute("update frames set frame = zeroblob(9) where first_seq = 3")
    db.commit()
    db.close()
    assert main(["--store", f"sqlite:{path}", "verify", "s"]) == CORRUPT
    out = capsys.readouterr().out
    assert "at the batch of seq 3: 9 bytes cannot be read" in out
    assert "byte 3" not in out


def test_an_absent_database_is_an_empty_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Listing a database that does not exist shows nothing, and makes nothing."""
    assert main(["--store", f"sqlite:{tmp_path}/new/sessions.db", "list", "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == []
    assert not (tmp_path / "new").exists()


def test_a_read_only_database_can_be_read_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reading commands work where nothing can be written; a fork there fails with the path."""
    store = tmp_path / "store"
    store.mkdir()
    asyncio.run(fill(store / "sessions.db"))
    with unwritable(store, tmp_path / "view") as view:
        url = f"sqlite:{view}/sessions.db"
        for command in (["list"], ["inspect", "s"], ["events", "s"], ["show", "s"]):
            assert main(["--store", url, *command]) == OK, command
        capsys.readouterr()
        assert main(["--store", url, "fork", "s"]) == FAILED
        assert "cannot be opened" in capsys.readouterr().err.splitlines()[-1]


def test_a_full_disk_fails_a_writing_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fork that finds no room fails and says so, and the source is as it was."""
    with small_file_system(tmp_path / "small", "1m") as place:
        asyncio.run(fill(place / "sessions.db", size=60_000))
        fill_up(place / "ballast")
        url = f"sqlite:{place}/sessions.db"
        assert main(["--store", url, "fork", "s"]) == FAILED
        assert "disk is full" in capsys.readouterr().err.splitlines()[-1]
        assert main(["--store", url, "events", "s"]) == OK
        assert len(capsys.readouterr().out.splitlines()) == 9
