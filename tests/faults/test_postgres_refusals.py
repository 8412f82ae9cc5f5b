"""Servers and databases that cannot be used: one typed error that says what to do, and its exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import psycopg
import pytest

import turnlog
from tests.crash.scenarios import add_turn
from tests.faults.lanes import missing
from tests.postgres_cluster import PORT, Cluster, fresh_schema, shared_cluster
from turnlog.backends.postgres.schema import VERSION
from turnlog.cli.boundary import FAILED, OK, UNSUPPORTED, USAGE
from turnlog.cli.main import main
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    TurnlogError,
    UndurableError,
    UnsupportedFormatError,
    UsageError,
)

SECRET = "s3cr3t-pass"
"""A password that no message may show."""


@pytest.fixture(name="strict", scope="module")
def _strict() -> Iterator[Cluster]:
    """Give a server that knows passwords, and whose settings may be changed."""
    cluster = Cluster()
    cluster.start()
    admin = cluster.admin()
    admin.execute(f"create user locked password '{SECRET}'".encode())
    admin.execute("create user guest")
    rules = cluster.data / "pg_hba.conf"
    text = rules.read_text()
    rules.write_text("local all locked scram-sha-256\nlocal all banned reject\n" + text)
    admin.execute("select pg_reload_conf()")
    yield cluster
    cluster.remove()


async def write(url: str) -> None:
    """Write one turn to a new session."""
    async with turnlog.open(url) as store:
        session = await store.create()
        add_turn(session, 1)
        await session.flush()
        await session.aclose()


async def error_of(url: str) -> TurnlogError:
    """Return what a writer is told."""
    found: TurnlogError | None = None
    try:
        async with turnlog.open(url) as store:
            try:
                session = await store.create()
                add_turn(session, 1)
                await session.flush()
            except TurnlogError as error:
                found = error
    except ExceptionGroup:
        assert found is not None  # the end of the store tells again what could not be written
    if isinstance(found, UndurableError):
        found = found.__cause__  # type: ignore[assignment]  # checked below
    assert isinstance(found, TurnlogError), "nothing was refused"
    return found


def listed(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """List a store on the command line; return the exit code and the one line of error."""
    capsys.readouterr()
    code = main(["--store", url, "list"])
    return code, capsys.readouterr().err


def check_line(code: int, line: str, *words: str, expected: int = FAILED) -> None:
    """Check the exit code and that one line says what to do and shows no secret."""
    assert code == expected, line
    assert line.count("\n") == 1, line
    assert SECRET not in line
    for word in words:
        assert word in line, line


def test_a_wrong_password(strict: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Says that the password was not accepted; no retry mends it, and the right one is let in."""
    wrong = strict.url(user="locked:wrong")
    code, line = listed(wrong, capsys)
    check_line(code, line, "password")
    right = strict.url(user=f"locked:{SECRET}")
    code, said = listed(right, capsys)
    assert (code, SECRET in said) == (OK, False)


async def test_a_wrong_password_is_not_retryable(strict: Cluster) -> None:
    """Neither a wrong password nor a missing one is called a passing trouble, nor is it shown."""
    for user in (f"locked:{SECRET}x", "locked"):
        async with turnlog.open(strict.url(user=user)) as store:
            with pytest.raises(BackendError) as refused:
                await store.read_from("s", 0)
        assert not refused.value.retryable
        assert SECRET not in str(refused.value)
        assert SECRET not in json.dumps(refused.value.details())


@pytest.mark.parametrize(
    ("user", "database", "word"),
    [
        ("nobody-here", "postgres", "nobody-here"),
        ("banned", "postgres", "pg_hba"),
        ("turnlog", "nope", "nope"),
    ],
)
async def test_a_refused_connection_names_the_reason(
    strict: Cluster, user: str, database: str, word: str
) -> None:
    """An unknown user, a rule against it, an absent database: named, and not retryable."""
    url = f"postgresql://{user}@/{database}?host={strict.home}&port={PORT}"
    async with turnlog.open(url) as store:
        with pytest.raises(BackendError, match=word) as refused:
            await store.read_from("s", 0)
    assert not refused.value.retryable


@pytest.fixture(name="foreign", scope="module", params=["de", "ru"])
def _foreign(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Give a server that speaks another language; of these two, one translates even the word FATAL."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LANGUAGE", request.param)
        cluster = Cluster({"lc_messages": "C.utf8", "superuser_reserved_connections": "1"})
        cluster.start()
    with pytest.raises(psycopg.OperationalError) as told:
        psycopg.connect(cluster.conninfo(user="nobody-here"))
    if "does not exist" in str(told.value):
        cluster.remove()
        missing("needs the server's messages in other languages")
    cluster.admin().execute("create user locked password 'x'")
    cluster.admin().execute("create user crowded connection limit 0")
    rules = cluster.data / "pg_hba.conf"
    rules.write_text("local all locked scram-sha-256\nlocal all banned reject\n" + rules.read_text())
    cluster.admin().execute("select pg_reload_conf()")
    yield cluster
    cluster.remove()


@pytest.mark.parametrize(
    ("user", "database", "retryable"),
    [
        ("nobody-here", "postgres", False),
        ("banned", "postgres", False),
        ("turnlog", "nope", False),
        ("locked", "postgres", False),
        (f"locked:{SECRET}", "postgres", False),
        ("crowded", "postgres", True),
    ],
    ids=["user", "rule", "database", "password", "wrong-password", "crowded"],
)
async def test_refusals_are_known_by_their_state(
    foreign: Cluster, user: str, database: str, retryable: bool
) -> None:
    """Whether a retry mends a refusal is told by its SQLSTATE, whatever language the server speaks."""
    url = f"postgresql://{user}@/{database}?host={foreign.home}&port={PORT}"
    async with turnlog.open(url) as store:
        with pytest.raises(BackendError) as refused:
            await store.read_from("s", 0)
    assert refused.value.retryable == retryable
    assert isinstance(refused.value, BackendUnavailableError) == retryable
    assert refused.value.wrote_nothing
    assert SECRET not in str(refused.value)


async def test_without_a_trace_a_refusal_counts_as_passing(
    foreign: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the driver keeps no trace the state is unknown: the server's words, and a retry."""
    monkeypatch.delattr(os, "memfd_create")
    url = f"postgresql://turnlog@/nope?host={foreign.home}&port={PORT}"
    async with turnlog.open(url) as store:
        with pytest.raises(BackendUnavailableError, match="nope"):
            await store.read_from("s", 0)


@pytest.mark.parametrize(
    "place", ["127.0.0.1:1", "no-such-host.invalid", "[::1]:1", "127.0.0.1:1,127.0.0.1:2"]
)
async def test_an_unreachable_server_is_unavailable(place: str) -> None:
    """Nobody listens, or the name is unknown: retryable, with the place in the message."""
    async with turnlog.open(f"postgresql://u:{SECRET}@{place}/d?connect_timeout=2") as store:
        with pytest.raises(BackendUnavailableError) as refused:
            await store.read_from("s", 0)
    assert SECRET not in str(refused.value)
    assert place.split(":")[0].strip("[") in str(refused.value)


def test_an_unreachable_server_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 1."""
    code, line = listed(f"postgresql://u:{SECRET}@127.0.0.1:1/d", capsys)
    check_line(code, line, "127.0.0.1")


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_would_lose_data_is_refused(strict: Cluster, setting: str) -> None:
    """A server that does not sync, or cannot repair torn pages, is refused before anything is written."""
    url = strict.url(schema=fresh_schema())
    strict.admin().execute(f"alter system set {setting} = off".encode())
    strict.admin().execute("select pg_reload_conf()")
    try:
        while strict.admin().execute(f"show {setting}".encode()).fetchone() != ("off",):
            pass
        refused = await error_of(url)
        assert isinstance(refused, BackendError)
        assert not refused.retryable
        assert f"{setting}=off" in str(refused)
        assert f"set {setting}=on" in str(refused)
    finally:
        strict.admin().execute(f"alter system reset {setting}".encode())
        strict.admin().execute("select pg_reload_conf()")
        while strict.admin().execute(f"show {setting}".encode()).fetchone() != ("on",):
            pass
    await write(url)


async def test_lazy_commits_of_the_role_are_overruled(strict: Cluster) -> None:
    """A role whose commits return early by default gets synchronous ones; a stricter default is kept."""
    for default, effective in (("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")):
        strict.admin().execute(f"alter role guest set synchronous_commit = {default}".encode())
        from turnlog.backends.postgres.address import parse_address
        from turnlog.backends.postgres.connecting import Connections

        connections = Connections(parse_address(strict.url(user="guest")))
        async with connections.use() as link:
            cursor = await link.execute("show synchronous_commit")
            assert await cursor.fetchone() == (effective,)
        await connections.aclose()
    strict.admin().execute("alter role guest reset synchronous_commit")


def test_a_schema_that_is_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """A schema with another program's tables is refused, also when one has the name of ours."""
    for table in ("places", "schema_steps", "sessions"):
        schema = fresh_schema()
        admin = shared_cluster().admin()
        admin.execute(f"create schema {schema}".encode())
        admin.execute(f"create table {schema}.{table} (url text)".encode())
        code, line = listed(shared_cluster().url(schema=schema), capsys)
        check_line(code, line, schema, "another program", "?schema=")


async def test_a_schema_that_is_not_ours_is_not_written(strict: Cluster) -> None:
    """Nothing is made in it."""
    schema = fresh_schema()
    strict.admin().execute(f"create schema {schema}".encode())
    strict.admin().execute(f"create table {schema}.places (url text)".encode())
    refused = await error_of(strict.url(schema=schema))
    assert isinstance(refused, BackendError)
    assert "another program" in str(refused)
    left = strict.admin().execute("select tablename from pg_tables where schemaname = %s", (schema,))
    assert left.fetchall() == [("places",)]


async def test_an_empty_schema_is_taken(strict: Cluster) -> None:
    """A schema that an administrator has made for a user without other rights is used as it is."""
    schema = fresh_schema()
    strict.admin().execute(f"create schema {schema} authorization guest".encode())
    await write(strict.url(schema=schema, user="guest"))
    made = strict.admin().execute("select tableowner from pg_tables where schemaname = %s", (schema,))
    assert {owner for (owner,) in made.fetchall()} == {"guest"}


async def test_a_user_without_rights(strict: Cluster) -> None:
    """Somebody who may not make a schema, or not read one, is told so."""
    refused = await error_of(strict.url(schema=fresh_schema(), user="guest"))
    assert isinstance(refused, BackendError)
    assert "privilege" in str(refused)
    assert not refused.retryable
    schema = fresh_schema()
    await write(strict.url(schema=schema))
    async with turnlog.open(strict.url(schema=schema, user="guest")) as store:
        with pytest.raises(BackendError, match="privilege"):
            await store.read_from("s", 0)


async def test_a_newer_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """A schema of a later release is refused for reading and for writing, and is not changed."""
    schema = fresh_schema()
    cluster = shared_cluster()
    await write(cluster.url(schema=schema))
    cluster.admin().execute(f"insert into {schema}.schema_steps values (99, now())".encode())
    refused = await error_of(cluster.url(schema=schema))
    assert isinstance(refused, UnsupportedFormatError)
    assert (refused.found, refused.supported, refused.direction) == (99, VERSION, "newer")


def test_a_newer_schema_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 4, and the advice to upgrade."""
    import asyncio

    schema = fresh_schema()
    cluster = shared_cluster()
    asyncio.run(write(cluster.url(schema=schema)))
    cluster.admin().execute(f"insert into {schema}.schema_steps values (99, now())".encode())
    code, line = listed(cluster.url(schema=schema), capsys)
    check_line(code, line, "upgrade turnlog", expected=UNSUPPORTED)


async def test_a_database_that_is_read_only_by_default(strict: Cluster) -> None:
    """Writing is refused with the setting's name; reading works."""
    schema = fresh_schema()
    await write(strict.url(schema=schema))
    strict.admin().execute("alter role guest set default_transaction_read_only = on")
    strict.admin().execute(f"grant usage on schema {schema} to guest".encode())
    strict.admin().execute(f"grant all on all tables in schema {schema} to guest".encode())
    url = strict.url(schema=schema, user="guest")
    try:
        async with turnlog.open(url) as store:
            assert [info.status async for info in store.list()] == ["ok"]
        refused = await error_of(url)
    finally:
        strict.admin().execute("alter role guest reset default_transaction_read_only")
    assert isinstance(refused, BackendError)
    assert not refused.retryable
    assert refused.wrote_nothing
    assert "default_transaction_read_only" in str(refused)


def test_readers_of_an_empty_database_see_an_empty_store(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was ever written: an empty list, and nothing is made by looking (R3)."""
    schema = fresh_schema()
    code, said = listed(shared_cluster().url(schema=schema), capsys)
    assert (code, said.startswith("no sessions in postgresql:")) == (OK, True)
    found = shared_cluster().admin().execute("select 1 from pg_namespace where nspname = %s", (schema,))
    assert found.fetchall() == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:database",
        f"postgresql://u:{SECRET}@[h/d",
        f"postgresql://u:{SECRET}@h/d?no_such_option=1",
        f"postgresql://u:{SECRET}@h/d?schema=Nope",
        f"postgresql://u:{SECRET}@h/d?schema=pg_catalog",
        f"postgresql://u:{SECRET}@h/d?pool=0",
        f"postgresql://u:{SECRET}@h/d?pool=many",
        f"postgresql://u:{SECRET}@h/d?attachments=",
        f"postgresql://u:{SECRET}@h/d?password={SECRET}&x=1",
    ],
)
async def test_a_url_that_cannot_be_right(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Refused as a mistake of the caller, exit code 2, without showing the password."""
    with pytest.raises(UsageError) as refused:
        async with turnlog.open(url):
            pass
    assert SECRET not in str(refused.value)


def test_a_url_that_cannot_be_right_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    code, line = listed(f"postgresql://u:{SECRET}@h/d?pool=0", capsys)
    check_line(code, line, "pool", expected=USAGE)
    code, line = listed(f"postgresql://u:{SECRET}@h:port/d", capsys)
    check_line(code, line, "port")
