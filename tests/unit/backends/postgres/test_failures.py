"""What the driver raises, as typed errors: what a retry may mend, and what certainly was not written."""

from __future__ import annotations

import psycopg
import pytest
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from tests.postgres_cluster import Cluster
from tests.unit.backends.postgres.conftest import Make
from turnlog.backends.postgres.failures import (
    RefusedConnectionError,
    RefusedServerError,
    WrongSchemaError,
    typed,
)
from turnlog.errors import BackendError, BackendUnavailableError, UnsupportedFormatError

PLACE = "postgresql://h/d"


@pytest.mark.parametrize(
    ("error", "retryable", "wrote_nothing"),
    [
        (PoolTimeout("t"), True, True),
        (TooManyRequests("t"), True, True),
        (PoolClosed("t"), False, True),
        (TimeoutError(), True, False),
        (RefusedServerError("r"), False, True),
        (WrongSchemaError("r"), False, True),
        (psycopg.OperationalError("server closed the connection"), True, False),
        (psycopg.OperationalError("FATAL:  database d does not exist"), True, False),
        (RefusedConnectionError("FATAL:  Datenbank d existiert nicht", "3D000"), False, True),
        (RefusedConnectionError("FATAL:  wrong", "28P01"), False, True),
        (RefusedConnectionError("FATAL:  not accepting connections", "55000"), False, True),
        (RefusedConnectionError("FATAL:  das Datenbanksystem startet", "57P03"), True, True),
        (RefusedConnectionError("FATAL:  too many", "53300"), True, True),
        (psycopg.DataError("too long"), False, True),
        (psycopg.ProgrammingError("cannot adapt"), False, True),
        (psycopg.InterfaceError("?"), False, False),
        (ValueError("?"), False, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_failures_without_a_state(error: Exception, retryable: bool, wrote_nothing: bool) -> None:
    """Failures on this side of the line are told apart by what they are."""
    found = typed(error, PLACE)
    assert isinstance(found, BackendError)
    assert (found.retryable, found.wrote_nothing) == (retryable, wrote_nothing)
    assert isinstance(found, BackendUnavailableError) == retryable


def test_typed_errors_pass_through() -> None:
    """What is typed already stays what it is."""
    error = UnsupportedFormatError(session_id=None, found=9, supported=1, direction="newer")
    assert typed(error, PLACE) is error


@pytest.mark.parametrize(
    ("state", "retryable"),
    [
        ("53100", True),
        ("53200", True),
        ("55P03", True),
        ("57014", True),
        ("57P01", True),
        ("40001", True),
        ("08006", True),
        ("42501", False),
        ("54000", False),
        ("XX001", False),
        ("22012", False),
    ],
)
async def test_states_of_the_server(make: Make, cluster: Cluster, state: str, retryable: bool) -> None:
    """An error of the server is a rollback for certain; whether a retry helps is told by its state."""
    connections = make().connections
    with pytest.raises(BackendError) as failed:
        async with connections.use() as link:
            await link.execute(f"do $$ begin raise sqlstate '{state}'; end $$".encode())
    assert (failed.value.retryable, failed.value.wrote_nothing) == (retryable, True)
    assert isinstance(failed.value.__cause__, psycopg.Error)


async def test_the_end_of_a_connection_is_an_unknown_outcome(make: Make) -> None:
    """A connection that the server ends in the middle of a statement may have written, or not."""
    connections = make().connections
    with pytest.raises(BackendUnavailableError) as failed:
        async with connections.use() as link:
            await link.execute("select pg_terminate_backend(pg_backend_pid())")
    assert not failed.value.wrote_nothing


@pytest.mark.parametrize("in_recovery", [False, True])
async def test_a_read_only_server(make: Make, in_recovery: bool) -> None:
    """A standby may become the primary; a setting stays until somebody changes it."""
    connections = make().connections

    async def write() -> None:
        async with connections.use() as link:
            link.in_recovery = in_recovery
            await link.execute("set transaction_read_only = on; create table x (y int)")

    with pytest.raises(BackendError) as failed:
        await write()
    assert failed.value.retryable == in_recovery
    assert failed.value.wrote_nothing
