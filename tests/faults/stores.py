"""One store of each kind by URL, with what tests do to it behind its back.

Owns files, rows and their spoiling. Processes and tasks that use the store are the tests' own.
"""

from __future__ import annotations

import random
import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from turnlog.events.segment import encode_segment

SUMMARY_FAULTS = ("random", "absent", "behind")
"""What may befall the one thing that is kept beside the logs."""


class Place(ABC):
    """Where a store is."""

    url: str
    kind: str
    """One of `KINDS`."""

    @abstractmethod
    def edit(self, text: str) -> None:
        """Run one statement on the tables of a database; files have none."""

    @abstractmethod
    def pieces(self, session_id: str) -> list[bytes]:
        """Return the stored events of a session, byte for byte, by what is stored in one piece."""

    def log(self, session_id: str) -> bytes:
        """Return the stored events of a session, byte for byte."""
        return b"".join(self.pieces(session_id))

    @abstractmethod
    def spoil_log(self, session_id: str, data: bytes) -> None:
        """Put other bytes in the place of a session's first stored ones."""

    @abstractmethod
    def rename(self, session_id: str, other: str) -> None:
        """Store a session under another id than its header has."""

    @abstractmethod
    def spoil_summaries(self, fault: str) -> None:
        """Do one of `SUMMARY_FAULTS` to what listings show beside the logs."""


class JsonlPlace(Place):
    """A root of files."""

    def __init__(self, folder: Path, compression: str) -> None:
        self.root = folder / "sessions"
        self.url = f"jsonl:{self.root}?compression={compression}"
        self.kind = "jsonl" if compression == "none" else "jsonl-zstd"

    def edit(self, text: str) -> None:
        raise AssertionError(f"files have no tables: {text}")

    def _file(self, session_id: str) -> Path:
        [found] = self.root.glob(f"*/{encode_segment(session_id)}/session.jsonl*")
        return found

    def pieces(self, session_id: str) -> list[bytes]:
        return [self._file(session_id).read_bytes()]

    def spoil_log(self, session_id: str, data: bytes) -> None:
        self._file(session_id).write_bytes(data)

    def rename(self, session_id: str, other: str) -> None:
        folder = self._file(session_id).parent
        folder.rename(folder.with_name(encode_segment(other)))

    def spoil_summaries(self, fault: str) -> None:
        files = sorted(self.root.glob("*/*/summary.json"))
        assert files
        for file in files:
            if fault == "random":
                file.write_bytes(random.randbytes(4096))
            elif fault == "absent":
                file.unlink()
            else:
                file.write_bytes(b'{"revision":"0:0","summary":{"turns":7}}\n')


class TablesPlace(Place):
    """A database with the tables that all of them have."""

    key: str

    @abstractmethod
    def run(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement with `?` for parameters."""

    def edit(self, text: str) -> None:
        self.run(text)

    def pieces(self, session_id: str) -> list[bytes]:
        rows = self.run(
            f"select frame from frames join sessions on session = {self.key} where segment = ? "
            "order by first_seq",
            encode_segment(session_id),
        )
        assert rows
        return [bytes(row[0]) for row in rows]

    def spoil_log(self, session_id: str, data: bytes) -> None:
        self.run(
            f"update frames set frame = ? where session = (select {self.key} from sessions where segment = ?)"
            " and first_seq = 0",
            data,
            encode_segment(session_id),
        )

    def rename(self, session_id: str, other: str) -> None:
        self.run(
            "update sessions set segment = ? where segment = ?",
            encode_segment(other),
            encode_segment(session_id),
        )

    def spoil_summaries(self, fault: str) -> None:
        summaries = {"random": random.randbytes(4096), "absent": None, "behind": b'{"turns":7}'}
        self.run("update sessions set summary = ?", summaries[fault])


class SqlitePlace(TablesPlace):
    """A database file."""

    kind = "sqlite"
    key = "key"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "sessions.db"
        self.url = f"sqlite:{self.path}"

    def run(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        db = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            return db.execute(text, parameters).fetchall()
        finally:
            db.close()


class PostgresPlace(TablesPlace):
    """A schema of the server that tests share."""

    kind = "postgres"
    key = "number"

    def __init__(self) -> None:
        from tests.postgres_cluster import fresh_schema, shared_cluster  # starts a server where it is used

        cluster = shared_cluster()
        self.schema = fresh_schema()
        self.url = cluster.url(schema=self.schema, more="&pool=4")
        self._admin = cluster.admin()

    def run(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self._admin.execute(f"set search_path to {self.schema}")  # a name of the tests' own making
        cursor = self._admin.execute(text.replace("?", "%s"), parameters)
        return cursor.fetchall() if cursor.description else []

    def plan(self, statement: bytes, parameters: dict[str, Any]) -> str:
        """Say how the server would run a statement if walking a small table did not cost less."""
        self._admin.execute("set enable_seqscan = off")
        rows = self._admin.execute(b"explain " + statement, parameters).fetchall()
        self._admin.execute("reset enable_seqscan")
        return "\n".join(row[0] for row in rows)


KINDS = ("jsonl", "jsonl-zstd", "sqlite", "postgres")


def make_place(kind: str, folder: Path) -> Place:
    """Return an empty store of one kind.

    Args:
        kind: One of `KINDS`.
        folder: An empty folder.
    """
    if kind == "sqlite":
        return SqlitePlace(folder)
    if kind == "postgres":
        return PostgresPlace()
    return JsonlPlace(folder, "zstd" if kind == "jsonl-zstd" else "none")
