"""The harness of the SQLite backend: a connection of the test's own is the out-of-band access.

A crash leaves everything as the death of the process does: its connections are never closed in order (which
would take the log into the database), and its lease names a process that is proven dead.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnlog.backends.row_facts import header_crc
from turnlog.backends.sqlite import links
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.events import frames
from turnlog.events.ecmascript import dumps
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import PersistenceBackend
from turnlog.testing.capabilities import ALL, Capability
from turnlog.testing.damage import flip_bit
from turnlog.testing.harness import CoordinatorHarness, RawSession

SQLITE_CAPABILITIES = ALL - {Capability.TORN_TAIL, Capability.PARTIAL_BATCH, Capability.POWER_LOSS}
"""A transaction is stored whole or not at all.

No power is cut here. SQLite makes its file calls by itself, so no file layer of ours can drop what it did not
sync; a file system can, and wants every file closed first, while a crash here leaves the connections open in
this process as a death would. The power is cut in the faults lane, under processes of its own.
"""


class SqliteHarness(CoordinatorHarness):
    """Any number of `SqliteBackend`s over one database.

    Args:
        folder: An empty folder.
        name: File name of the database.
        kind: The class of the backends.
    """

    def __init__(
        self, folder: Path, *, name: str = "sessions.db", kind: type[SqliteBackend] = SqliteBackend
    ) -> None:
        super().__init__()
        self.path = folder / name
        self.kind = kind

    def make_backend(self) -> PersistenceBackend:
        return self.kind(self.path)

    async def crash_backend(self, backend: PersistenceBackend) -> None:
        assert isinstance(backend, SqliteBackend)
        writer = backend.writer_id
        thread = backend.writer._thread
        backend.forget()
        if thread is not None:
            await asyncio.to_thread(thread.join)
        if not self.path.exists():
            return
        with self.database() as db:
            if not db.execute("select 1 from sqlite_master where name = 'writers'").fetchone():
                return
            found = db.execute("select owner from writers where writer = ?", (writer,)).fetchone()
            if found is not None:
                facts = json.loads(found[0])
                if facts.get("start_time") is None:  # a stranger's process: only its lease can end
                    db.execute("update writers set expires = 0 where writer = ?", (writer,))
                else:
                    facts["start_time"] -= 1  # the pid belongs to another process now
                    db.execute("update writers set owner = ? where writer = ?", (json.dumps(facts), writer))

    async def raw(self, session_id: str) -> RawSession | None:
        if not self.path.exists():
            return None
        with self.database() as db:
            if not db.execute("select 1 from sqlite_master where name = 'sessions'").fetchone():
                return None
            found = db.execute(
                "select key, header from sessions where segment = ? and header is not null",
                (encode_segment(session_id),),
            ).fetchone()
            if found is None:
                return None
            rows = db.execute(
                "select frame from frames where session = ? order by first_seq", (found[0],)
            ).fetchall()
        return RawSession((found[1], *(row[0] for row in rows)))

    async def damage(self, session_id: str) -> None:
        with self.database() as db:
            key, frame = self._first_frame(db, session_id)
            spoiled = flip_bit(frame, len(frame) // 2)
            db.execute("update frames set frame = ? where session = ? and first_seq = 0", (spoiled, key))

    async def plant(self, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        backend = self.kind(self.path)
        await backend.writer.run(lambda db: None)  # makes the tables
        await backend.aclose()
        text = "".join(dumps(dict(event)) + "\n" for event in events).encode()
        line = dumps(dict(header)).encode() + b"\n"
        frame = frames.compress(text)
        with self.database() as db:
            done = db.execute(
                "insert into sessions(segment, epoch, claimed_at, incarnation, header, header_crc, next_seq, "
                "size) values(?, 1, 0, ?, ?, ?, ?, ?)",
                (
                    encode_segment(header["id"]),
                    uuid.uuid4().hex,
                    line,
                    header_crc(line),
                    len(events),
                    len(line) + (len(frame) if events else 0),
                ),
            )
            if events:
                db.execute("insert into frames values(?, 0, ?, ?)", (done.lastrowid, len(events) - 1, frame))

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Open the database behind the backend's back; what is done is committed."""
        db = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        try:
            yield db
        finally:
            db.close()

    def _first_frame(self, db: sqlite3.Connection, session_id: str) -> tuple[int, bytes]:
        found = db.execute(
            "select key, frame from sessions join frames on session = key "
            "where segment = ? and first_seq = 0",
            (encode_segment(session_id),),
        ).fetchone()
        assert found is not None, f"nothing is stored under {session_id!r}"
        return found[0], found[1]

    def close(self) -> None:
        """Close the connections that crashed backends left behind."""
        for link in links.open_links(str(self.path)):
            link.close()
