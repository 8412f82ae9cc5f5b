"""The tables of a store: made and migrated by numbered steps, and refused when they are not ours.

Owns the steps, the table that counts them and the advisory lock under which they are taken. A reader never
makes or migrates anything; a schema that is absent reads as an empty store.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from turnlog.backends.postgres.failures import WrongSchemaError
from turnlog.errors import UnsupportedFormatError

if TYPE_CHECKING:
    from turnlog.backends.postgres.link import Link

_BASE: Final = 2
"""Up to this version headers have no checksum; no release writes or reads them."""

_STEPS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """create table turnlog.sessions (
            number bigint generated always as identity primary key,
            segment text collate "C" not null unique,
            header bytea not null,
            header_crc bigint not null,
            epoch bigint not null,
            writer text,
            next_seq bigint not null,
            revision bigint not null,
            size bigint not null,
            last_write bigint not null,
            summary bytea,
            summary_crc bigint
        )""",
        """create table turnlog.frames (
            session bigint not null,
            first_seq bigint not null,
            last_seq bigint not null,
            frame bytea not null,
            primary key (session, first_seq)
        )""",
        """create table turnlog.writers (
            writer text primary key,
            owner text not null,
            expires bigint not null
        )""",
        # Each append updates its session's row and the lease, so pages keep room for the new versions.
        "alter table turnlog.sessions set (fillfactor = 50)",
        "alter table turnlog.writers set (fillfactor = 50)",
        # A frame is compressed already.
        "alter table turnlog.frames alter column frame set storage external",
    ),
)
"""Statements that lead from each version to the next; the first begins with an empty schema.

A step adds and tunes; it never changes what a reader of an earlier version looks at, because a store is read
before it is first written, and reading migrates nothing (R3).
"""

VERSION: Final = _BASE + len(_STEPS)
"""The version this release writes: the number of the last step taken."""

_STATE: Final = """
select to_regclass('"{schema}".schema_steps') is not null,
    (select count(*) from pg_class where relnamespace = to_regnamespace('"{schema}"')),
    to_regnamespace('"{schema}"') is not null"""

_MARKER: Final = "create table turnlog.schema_steps (step integer primary key, taken timestamptz not null)"
_LOOKS_OURS: Final = """
select count(*) from pg_attribute
where attrelid = '"{schema}".schema_steps'::regclass and attname in ('step', 'taken') and not attisdropped"""
_OUR_COLUMNS: Final = 2


class Schema:
    """One schema of one database.

    Args:
        name: Its name.
        place: The address's label, for messages.
    """

    def __init__(self, name: str, place: str) -> None:
        self._name = name
        self._place = place
        self._is_there = False
        self._is_ready = False

    def forget(self) -> None:
        """Look again next time: what was known about the schema no longer holds."""
        self._is_there = self._is_ready = False

    async def is_readable(self, link: Link) -> bool:
        """Tell whether there is something of ours to read; changes nothing.

        Args:
            link: A connection.

        Returns:
            False where the schema is absent or empty.

        Raises:
            WrongSchemaError: It holds something else.
            UnsupportedFormatError: This release does not read its version.
        """
        self._is_there = self._is_there or await self._version(link) > 0
        return self._is_there

    async def make_ready(self, link: Link) -> None:
        """Make the tables, or take the steps that are missing, in one transaction under an advisory lock.

        Args:
            link: A connection outside of a transaction.

        Raises:
            WrongSchemaError: The schema holds something else.
            UnsupportedFormatError: This release does not read its version.
            psycopg.Error: The server refused; nothing was changed.
        """
        if self._is_ready:
            return
        if await self._version(link) < VERSION:
            async with link.transaction():
                # The lock also keeps two processes from making the schema at the same time.
                await link.execute("select pg_advisory_xact_lock(%s)", (self._lock_key(),))
                await self._take_steps(link, await self._version(link))
        self._is_there = self._is_ready = True

    async def _take_steps(self, link: Link, version: int) -> None:
        if version == 0:
            [_, _, exists] = await self._row(link, _STATE)
            if not exists:
                await link.execute(self._named(f'create schema "{self._name}"'))
            await link.execute(self._named(_MARKER))
        for number in range(max(version, _BASE), VERSION):
            for statement in _STEPS[number - _BASE]:
                await link.execute(self._named(statement))
            await link.execute(
                self._named("insert into turnlog.schema_steps values (%s, clock_timestamp())"), (number + 1,)
            )

    async def _version(self, link: Link) -> int:
        [marked, objects, _] = await self._row(link, _STATE)
        if not marked and objects == 0:
            return 0
        ours = marked and (await self._row(link, _LOOKS_OURS))[0] == _OUR_COLUMNS
        if not ours:
            raise WrongSchemaError(
                f'the schema "{self._name}" holds {objects} tables and indexes of another program; '
                "choose another one with ?schema=NAME"
            )
        [version] = await self._row(link, "select coalesce(max(step), 0) from turnlog.schema_steps")
        if not _BASE < version <= VERSION:
            raise UnsupportedFormatError(
                session_id=None,
                found=version,
                supported=VERSION,
                direction="older" if version <= _BASE else "newer",
                path=self._place,
            )
        return int(version)

    async def _row(self, link: Link, text: str) -> tuple[Any, ...]:
        cursor = await link.execute(self._named(text.replace("{schema}", self._name)))
        row = await cursor.fetchone()
        assert row is not None
        return row

    def _named(self, text: str) -> bytes:
        return text.replace("turnlog.", f'"{self._name}".').encode()

    def _lock_key(self) -> int:
        digest = hashlib.sha256(f"turnlog schema {self._name}".encode()).digest()
        return int.from_bytes(digest[:8], "big", signed=True)
