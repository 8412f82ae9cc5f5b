"""`postgresql://` URLs: what the driver gets, what is turnlog's own, and what may be shown."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import turnlog
from turnlog.backends.postgres.address import DEFAULT_POOL, parse_address
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.errors import UsageError, without_secrets
from turnlog.events.header import SessionHeader

SECRET = "s3cr3t"


def test_the_drivers_parameters_are_kept_and_completed() -> None:
    """What the URL says counts; what it leaves out is set so that a lost server is noticed in time."""
    address = parse_address(f"postgresql://u:{SECRET}@db.example:5433/logs?connect_timeout=3&sslmode=require")
    given = conninfo_to_dict(address.conninfo)
    assert (given["user"], given["password"], given["host"], given["port"]) == (
        "u",
        SECRET,
        "db.example",
        "5433",
    )
    assert (given["dbname"], given["connect_timeout"], given["sslmode"]) == ("logs", "3", "require")
    assert given["tcp_user_timeout"] == "30000"
    assert given["client_encoding"] == "UTF8"
    assert "target_session_attrs" not in given


def test_our_options_are_not_the_drivers(tmp_path: Path) -> None:
    """Schema, pool size and the folder of attachments are taken out before the driver sees the URL."""
    address = parse_address(f"postgres://h/d?schema=agents_1&pool=3&attachments={tmp_path}/a%20b")
    assert (address.schema, address.pool_size) == ("agents_1", 3)
    assert address.attachments == tmp_path / "a b"
    plain = parse_address("postgresql://h/d")
    assert (plain.schema, plain.pool_size, plain.attachments) == ("turnlog", DEFAULT_POOL, None)


def test_of_several_servers_the_primary_is_wanted() -> None:
    """Unless the URL says which of them; a single one is taken as it is, so that a standby can be read."""
    several = conninfo_to_dict(parse_address("postgresql://a:1,b:2/d").conninfo)
    assert several["target_session_attrs"] == "primary"
    chosen = conninfo_to_dict(parse_address("postgresql://a,b/d?target_session_attrs=any").conninfo)
    assert chosen["target_session_attrs"] == "any"


@pytest.mark.parametrize(
    ("url", "label"),
    [
        (f"postgresql://u:{SECRET}@h:1/d", "postgresql://h:1/d?schema=turnlog"),
        ("postgresql://a,b:2/d?schema=x", "postgresql://a,b:2/d?schema=x"),
        ("postgresql://a,b/d?port=7", "postgresql://a:7,b:7/d?schema=turnlog"),
        ("postgresql:///d", "postgresql:///d?schema=turnlog"),
    ],
)
def test_labels_tell_the_place_and_no_secret(url: str, label: str) -> None:
    """Host, port, database and schema; never a user or a password, not in a repr either."""
    address = parse_address(url)
    assert address.label == label
    assert SECRET not in repr(address)
    located = PostgresBackend(address).locate(SessionHeader(id="a/b", created_at=1))
    assert located == f"{label}#a~002Fb"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://u:{SECRET}@h/d",
        f"postgresql://u:a/{SECRET}@h/d",
        f"x postgresql://h/d?password={SECRET}&y=1 z",
        f"PASSWORD={SECRET}",
    ],
)
def test_secrets_are_taken_out_of_texts(text: str) -> None:
    """Wherever a URL or a message holds a password."""
    assert SECRET not in without_secrets(text)


@pytest.mark.parametrize("url", ["postgresql:d", "postgresql://h/d?pool=x", "postgresql://h/d?nope=1"])
def test_a_url_that_cannot_be_right_is_the_callers_mistake(url: str) -> None:
    """Said before anything is connected."""
    with pytest.raises(UsageError):
        parse_address(url)


async def test_both_spellings_open_a_store(tmp_path: Path) -> None:
    """Nothing is connected before it is used; attachments go where the URL says."""
    for scheme in ("postgresql", "postgres"):
        async with turnlog.open(f"{scheme}://127.0.0.1:1/d?attachments={tmp_path}"):
            pass


async def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error says what to install."""
    inner = builtins.__import__

    def without_driver(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        if name.startswith("turnlog.backends.postgres"):
            raise ImportError("No module named 'psycopg'")
        return inner(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without_driver)
    with pytest.raises(UsageError, match=r"install turnlog\[postgres\]"):
        async with turnlog.open("postgresql://h/d"):
            pass
