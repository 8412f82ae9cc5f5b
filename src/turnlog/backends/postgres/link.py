"""One connection: checked before its first use, and let go of without saying the wrong thing.

Owns the settings that durability rests on, set or verified on the server, and the ways to find, break off
and cut a connection that is no longer good. Where connections come from is `connecting`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import pq
from psycopg.errors import Diagnostic

from turnlog.backends.postgres.failures import RefusedServerError
from turnlog.backends.postgres.refusals import explained

if TYPE_CHECKING:
    from turnlog.backends.postgres.connecting import Connections

_CANCEL_SECONDS: Final = 1.0
"""How long a server that does not answer may take to take notice that it need not."""
OLDEST_SERVER: Final = 130_000
"""Oldest server version, as `server_version_num`."""

_SETTINGS: Final = """
select set_config('synchronous_commit', case current_setting('synchronous_commit')
        when 'remote_apply' then 'remote_apply' else 'on' end, false),
    set_config('lock_timeout', %s, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('search_path', 'pg_catalog', false),
    current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('server_version_num')::integer, pg_is_in_recovery()"""

_LOSING_WAIT: Final = "SyncRepWaitForLSN"
"""Place in the server that warns when a commit stops waiting for its synchronous standby. The warning is
all that tells such a commit from a durable one: it is reported as a success."""


class Link(psycopg.AsyncConnection[tuple[Any, ...]]):
    """One connection with what was learnt about its server."""

    in_recovery = False
    """Whether the server was a standby when the connection was made."""
    is_undurable = False
    """Whether a commit on it returned before its synchronous standby had it."""
    has_timed_out = False
    """Whether it was broken off because the server did not answer."""
    give_time: Callable[[], None]
    """Tells whoever watches over its work that the work comes along."""

    @classmethod
    async def connect(  # type: ignore[override]  # the pool hands on what it was given
        cls, conninfo: str = "", *, owner: Connections
    ) -> Link:
        """Connect and check; what goes wrong is told to the owner, since the pool keeps it to itself."""
        try:
            link: Link = await super().connect(conninfo, autocommit=True)
            try:
                await link.check(owner.lock_seconds)
                owner.welcome(link)
            except BaseException:
                await link.close()
                raise
        except psycopg.OperationalError as error:
            owner.connect_failure = found = await explained(error, conninfo)
            raise found from found.__cause__
        except Exception as error:
            owner.connect_failure = error
            raise
        return link

    async def check(self, lock_seconds: float) -> None:
        """Set what durability needs, and refuse a server that would lose data."""
        cursor = await self.execute(_SETTINGS, (f"{int(lock_seconds * 1000)}ms",))
        row = await cursor.fetchone()
        assert row is not None
        *_, fsync, full_page_writes, version, self.in_recovery = row
        if version < OLDEST_SERVER:
            raise RefusedServerError(
                f"the server has version {version // 10_000}, turnlog needs {OLDEST_SERVER // 10_000}"
            )
        for setting, value in (("fsync", fsync), ("full_page_writes", full_page_writes)):
            if value != "on":
                raise RefusedServerError(
                    f"the server runs with {setting}={value} and would lose acknowledged events in a power "
                    f"cut; set {setting}=on in its configuration"
                )
        self.add_notice_handler(self._notice)

    def _notice(self, notice: Diagnostic) -> None:
        if notice.source_function == _LOSING_WAIT:
            self.is_undurable = True

    def is_broken(self) -> bool:
        """Tell, without asking the server, whether it has closed this idle connection."""
        try:
            poll = select.poll()
            poll.register(self.pgconn.socket, select.POLLIN)
            while poll.poll(0):
                self.pgconn.consume_input()
        except psycopg.OperationalError:
            return True
        return self.pgconn.status != pq.ConnStatus.OK

    async def break_off(self) -> None:
        """Ask the server to stop what it does, then hang up: whoever waits on this connection gets an error.

        Asking first matters where the server waits for its standby: it would go on waiting without us.
        """
        self.has_timed_out = True
        with contextlib.suppress(psycopg.Error, OSError):
            await self.cancel_safe(timeout=_CANCEL_SECONDS)
            await asyncio.sleep(_CANCEL_SECONDS / 10)
        with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Drop the connection without a word to the server; in a forked child the parent keeps its own."""
        with contextlib.suppress(psycopg.OperationalError):  # it has no socket any more
            # What the driver says when it closes goes nowhere: the socket is the parent's as well.
            nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.dup2(nowhere, self.pgconn.socket, inheritable=False)
            finally:
                os.close(nowhere)
        self.pgconn.finish()
