"""The state of a refused connection: asked for where a server has answered, and only there."""

from __future__ import annotations

import os

import psycopg
import pytest

from tests.postgres_cluster import Cluster
from turnlog.backends.postgres import refusals
from turnlog.backends.postgres.failures import RefusedConnectionError
from turnlog.backends.postgres.refusals import explained


async def failure(conninfo: str) -> psycopg.OperationalError:
    """Return what connecting fails with."""
    with pytest.raises(psycopg.OperationalError) as failed:
        await psycopg.AsyncConnection.connect(conninfo)
    return failed.value


@pytest.mark.parametrize(
    ("user", "database", "state"), [("nobody-here", "postgres", "28000"), ("turnlog", "nope", "3D000")]
)
async def test_a_refusal_has_a_state(cluster: Cluster, user: str, database: str, state: str) -> None:
    """What the server has said stays, and the state that goes with it is added."""
    conninfo = cluster.conninfo(user=user, database=database)
    error = await failure(conninfo)
    found = await explained(error, conninfo)
    assert isinstance(found, RefusedConnectionError)
    assert (found.sqlstate, found.__cause__) == (state, error)
    assert str(found) == str(error)


@pytest.mark.parametrize("place", ["host=/no/such/folder", "host=127.0.0.1 port=1"])
async def test_nobody_is_asked_twice_where_nobody_answers(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was not reached is not tried again, since that may take as long once more."""
    asked: list[str] = []
    monkeypatch.setattr(refusals, "_states", asked.append)
    error = await failure(place)
    assert await explained(error, place) is error
    assert asked == []


async def test_a_server_that_lets_us_in_the_second_time(cluster: Cluster) -> None:
    """Trouble that has passed has no state: the first error stays, and a retry may mend it."""
    error = await failure(cluster.conninfo(user="nobody-here"))
    assert await explained(error, cluster.conninfo()) is error


async def test_a_server_that_has_gone_the_second_time(cluster: Cluster) -> None:
    """A server that answered once and is away by now leaves the first error as it is."""
    error = await failure(cluster.conninfo(user="nobody-here"))
    assert await explained(error, "host=/no/such/folder") is error


async def test_a_state_that_is_known_is_not_asked_for(cluster: Cluster) -> None:
    """An error that has a state already is what it is."""
    error = RefusedConnectionError("FATAL:  no", "28000")
    assert await explained(error, "host=/no/such/folder") is error


async def test_a_silent_server_is_not_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt has a time of its own."""
    monkeypatch.setattr(refusals, "SECONDS", 0.0)
    error = await failure(cluster.conninfo(user="nobody-here"))
    assert await explained(error, cluster.conninfo(user="nobody-here")) is error


async def test_without_a_trace_there_is_no_state(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a platform without traces the first error stays."""
    monkeypatch.delattr(os, "memfd_create")
    error = await failure(cluster.conninfo(user="nobody-here"))
    assert await explained(error, cluster.conninfo(user="nobody-here")) is error
