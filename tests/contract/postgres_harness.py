"""The harness of the PostgreSQL backend: a schema per test in a real server, read and spoilt by plain SQL.

A crash cuts the connections and lets the lease of the dead process run out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import Connection, errors, sql

from tests.postgres_cluster import Cluster, fresh_schema, shared_cluster
from turnlog.backends.postgres.address import parse_address
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.backends.row_facts import header_crc
from turnlog.events import frames
from turnlog.events.ecmascript import dumps
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import PersistenceBackend
from turnlog.testing.capabilities import ALL, Capability
from turnlog.testing.damage import flip_bit
from turnlog.testing.harness import CoordinatorHarness, RawSession

POSTGRES_CAPABILITIES = ALL - {Capability.POWER_LOSS, Capability.PARTIAL_BATCH, Capability.TORN_TAIL}
"""A transaction is stored whole or not at all, so there is no torn tail and no part of a batch. Power cuts
are tried on a server of their own in the faults lane, since the one here is shared by all tests."""


class PostgresHarness(CoordinatorHarness):
    """Any number of `PostgresBackend`s over one schema.

    Args:
        cluster: A running server; the one that all tests share by default.
        kind: The class of the backends, for wrong ones.
    """

    def __init__(self, cluster: Cluster | None = None, kind: type[PostgresBackend] = PostgresBackend) -> None:
        super().__init__()
        self.kind = kind
        self.cluster = cluster if cluster is not None else shared_cluster()
        self.schema = fresh_schema()
        self.url = self.cluster.url(schema=self.schema, more="&pool=4")
        self.admin: Connection[tuple[Any, ...]] = self.cluster.admin()

    def make_backend(self) -> PersistenceBackend:
        return self.kind(parse_address(self.url))

    async def crash_backend(self, backend: PersistenceBackend) -> None:
        assert isinstance(backend, PostgresBackend)
        servers = [link.pgconn.backend_pid for link in backend.connections.links if not link.closed]
        backend.forget()
        await backend.connections.aclose()
        # What the server was doing for the dead process when it died is done or undone by now.
        while self._run("select 1 from pg_stat_activity where pid = any(%s)", servers):
            await asyncio.sleep(0.005)
        with contextlib.suppress(errors.UndefinedTable):  # it has died before it made one
            self._run("update {}.writers set expires = 0 where writer = %s", backend.lease.writer)

    async def raw(self, session_id: str) -> RawSession | None:
        try:
            found = self._run(
                "select number, header, summary from {}.sessions where segment = %s",
                encode_segment(session_id),
            )
        except errors.UndefinedTable:
            return None
        if not found:
            return None
        [[number, header, summary]] = found
        rows = self._run("select frame from {}.frames where session = %s order by first_seq", number)
        beside = {} if summary is None else {"summary": bytes(summary)}
        return RawSession((bytes(header), *(bytes(row[0]) for row in rows)), beside)

    async def damage(self, session_id: str) -> None:
        number = self._number(session_id)
        [[first, frame]] = self._run(
            "select first_seq, frame from {}.frames where session = %s order by first_seq limit 1", number
        )
        spoilt = flip_bit(bytes(frame), len(frame) // 2)
        self._run(
            "update {}.frames set frame = %s where session = %s and first_seq = %s", spoilt, number, first
        )
        self._run("update {}.sessions set revision = revision + 1 where number = %s", number)

    async def plant(self, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        store = await self.open()  # makes the tables
        inner = self.faults(store).inner
        assert isinstance(inner, PostgresBackend)
        await inner.renew(())
        await store.aclose()
        line = dumps(dict(header)).encode() + b"\n"
        frame = frames.compress("".join(dumps(dict(event)) + "\n" for event in events).encode())
        [[number]] = self._run(
            "insert into {}.sessions (segment, header, header_crc, epoch, next_seq, revision, size, "
            "last_write) values (%s, %s, %s, 1, %s, 1, %s, 0) returning number",
            encode_segment(header["id"]),
            line,
            header_crc(line),
            len(events),
            len(line) + (len(frame) if events else 0),
        )
        if events:
            self._run("insert into {}.frames values (%s, 0, %s, %s)", number, len(events) - 1, frame)

    def _number(self, session_id: str) -> int:
        [[number]] = self._run(
            "select number from {}.sessions where segment = %s", encode_segment(session_id)
        )
        return int(number)

    def _run(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run one statement, with the schema in the place of the braces."""
        query = sql.SQL(text).format(sql.Identifier(self.schema))
        cursor = self.admin.execute(query, parameters)
        return cursor.fetchall() if cursor.description else []
