"""Why a server refused a connection: by SQLSTATE, whatever language it speaks.

Owns one more attempt to connect. While a connection is being made, the client library passes on the server's
words and keeps the state that goes with them to itself; a trace of the attempt has it. What a state means is
known to `failures`.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import time
from typing import Final

import psycopg
from psycopg import pq

from turnlog.backends.postgres.failures import RefusedConnectionError, is_passing

SECONDS: Final = 5.0
"""How long the second attempt may take; a server that has just answered needs far less."""

_ANSWERED: Final = re.compile(r"\S:  \S")
"""The client library sets what a server says off in this way, in every language."""
_STATE: Final = re.compile(rb'^B\t\d+\tErrorResponse\t.*? C "([0-9A-Z]{5})" ', re.MULTILINE)


async def explained(error: psycopg.OperationalError, conninfo: str) -> psycopg.OperationalError:
    """Find out the state of a failure to connect.

    Args:
        error: What the attempt failed with.
        conninfo: What it connected to.

    Returns:
        An error with the state, where a server refused; the same one where none was reached, or where the
        client library keeps no trace.
    """
    if error.sqlstate is not None or not _ANSWERED.search(str(error)):
        return error
    states = await asyncio.to_thread(_states, conninfo)
    if not states:
        return error
    # Of several servers, the one that may let us in later decides.
    state = next((state for state in states if is_passing(state)), states[-1])
    refused = RefusedConnectionError(str(error), state)
    refused.__cause__ = error
    return refused


def _states(conninfo: str) -> list[str]:
    """Connect once more and return the states of what servers answer. Blocks."""
    if not hasattr(os, "memfd_create"):
        return []  # the driver traces on Linux only
    trace = os.memfd_create("turnlog-refusal")  # it may hold a password, so it never has a name
    try:
        pgconn = pq.PGconn.connect_start(conninfo.encode())
        try:
            pgconn.trace(trace)
            pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
            _try(pgconn)
            pgconn.untrace()  # writes out what is held back
        finally:
            pgconn.finish()
        return [state.decode() for state in _STATE.findall(os.pread(trace, os.fstat(trace).st_size, 0))]
    except (psycopg.Error, OSError):  # pragma: no cover  # a client library too old to trace
        return []
    finally:
        os.close(trace)


def _try(pgconn: pq.abc.PGconn) -> None:
    """Drive an attempt to connect to its end, good or bad."""
    deadline = time.monotonic() + SECONDS
    wanted: dict[int, int] = {
        pq.PollingStatus.READING: select.POLLIN,
        pq.PollingStatus.WRITING: select.POLLOUT,
    }
    while pgconn.status != pq.ConnStatus.BAD and (left := deadline - time.monotonic()) > 0:
        events = wanted.get(pgconn.connect_poll())
        if events is None:
            return
        poll = select.poll()
        poll.register(pgconn.socket, events)
        poll.poll(left * 1000)
