"""A store that implements the service directly runs `PersistenceContract`, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.one_table_store import OneTableStore
from turnlog.events.ecmascript import dumps
from turnlog.events.segment import encode_segment
from turnlog.testing import Capability, Harness, PersistenceContract, RawSession


class OneTableHarness(Harness):
    """The table is read and written with a connection of the test's own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> OneTableStore:
        return OneTableStore(self.path)

    async def crash(self, store: OneTableStore) -> None:
        await store.aclose()  # every call has committed or not begun: a closed connection is a dead one

    async def raw(self, session_id: str) -> RawSession | None:
        with sqlite3.connect(self.path) as db:
            row = db.execute(
                "select header, lines from log where segment = ?", (encode_segment(session_id),)
            ).fetchone()
        db.close()
        return None if row is None else RawSession(bytes(row[0]) + bytes(row[1]))

    async def damage(self, session_id: str) -> None:
        with sqlite3.connect(self.path) as db:
            [lines] = db.execute("select lines from log where segment = ?", (session_id,)).fetchone()
            spoiled = bytes(lines).replace(b'"type"', b'"tipe"', 1)
            db.execute("update log set lines = ? where segment = ?", (spoiled, session_id))
        db.close()

    async def plant(self, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        store = OneTableStore(self.path)
        await store.aclose()  # makes the table
        lines = "".join(dumps(dict(event)) + "\n" for event in events).encode()
        row = (encode_segment(header["id"]), dumps(dict(header)).encode() + b"\n", lines, len(events))
        with sqlite3.connect(self.path) as db:
            db.execute("insert into log values (?, ?, ?, ?)", row)
        db.close()


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> OneTableHarness:
    return OneTableHarness(tmp_path / "sessions.db")


class TestOneTableStore(PersistenceContract):
    """The service without the coordinator."""

    backend = "third-party"
    capabilities = frozenset(
        {Capability.DELETE, Capability.HEADER_ONLY, Capability.DAMAGE, Capability.REVISIONS, Capability.PLANT}
    )
