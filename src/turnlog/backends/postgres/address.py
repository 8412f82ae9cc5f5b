"""`postgresql://` URLs taken apart: what the driver gets, what is turnlog's own, what may be shown.

Owns the options of a URL and the connection parameters that are set where the URL leaves them out. It
connects to nothing. No text made here holds a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from turnlog.errors import UsageError, quote, without_secrets

DEFAULT_SCHEMA: Final = "turnlog"
DEFAULT_POOL: Final = 8
"""Most connections of one store, the one that listens not counted."""

_OWN_OPTIONS: Final = ("attachments", "pool", "schema")
_SCHEMA_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}", re.ASCII)
_DEFAULTS: Final[dict[str, str | int]] = {
    "fallback_application_name": "turnlog",
    # An unreachable server is an error after seconds, not after the minutes of the kernel's retries; so is
    # a server whose machine has lost its power in the middle of a statement.
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where a store is, and how it is reached."""

    conninfo: str = field(repr=False)
    """For the driver; may hold a password."""
    schema: str
    """The schema that holds all of the store's tables."""
    label: str
    """The place for people: host, port, database and schema; never a user or a password."""
    pool_size: int = DEFAULT_POOL
    """Most connections of one store."""
    attachments: Path | None = None
    """Folder for attachments, or None to keep them in memory."""


def parse_address(url: str) -> PostgresAddress:
    """Take a store URL apart; nothing is looked up.

    Args:
        url: `postgresql://[user[:password]@]host[:port][,…]/database[?option=value&…]`. `schema=NAME`,
            `pool=N` and `attachments=PATH` are turnlog's own; everything else is the driver's.

    Returns:
        The address.

    Raises:
        UsageError: It is no such URL, or an option cannot be right; the text names no password.
    """
    scheme, _, rest = url.partition(":")
    place, _, query = rest.partition("?")
    if not place.startswith("//"):
        raise UsageError(f"{quote(without_secrets(url))} names no server; write {scheme}://HOST/DATABASE")
    own, others = _split_options(query)
    text = f"postgresql:{place}" + (f"?{'&'.join(others)}" if others else "")
    try:
        given = conninfo_to_dict(text)
    except psycopg.Error as error:
        # Chained to nothing: the driver's message may quote the password.
        raise UsageError(
            f"{quote(without_secrets(url))} is not a PostgreSQL URL: {without_secrets(str(error))}"
        ) from None
    parameters = {name: value for name, value in given.items() if value is not None}
    schema = _schema(own.get("schema", DEFAULT_SCHEMA), url)
    hosts = str(parameters.get("host", parameters.get("hostaddr", "")))
    if "," in hosts:
        # Of several servers one takes writes; the others are standbys.
        parameters.setdefault("target_session_attrs", "primary")
    for name, value in _DEFAULTS.items():
        parameters.setdefault(name, value)
    parameters["client_encoding"] = "UTF8"
    return PostgresAddress(
        conninfo=make_conninfo("", **parameters),
        schema=schema,
        label=_label(parameters, schema),
        pool_size=_pool(own.get("pool"), url),
        attachments=_folder(own.get("attachments"), url),
    )


def _split_options(query: str) -> tuple[dict[str, str], list[str]]:
    own: dict[str, str] = {}
    others: list[str] = []
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        if name in _OWN_OPTIONS:
            own[name] = unquote(value)
        else:
            others.append(pair)
    return own, others


def _schema(name: str, url: str) -> str:
    if not _SCHEMA_NAME.fullmatch(name):
        raise UsageError(
            f"{quote(without_secrets(url))} has schema={quote(name)}; a schema is up to 48 lower-case "
            "letters, digits and underscores and does not begin with a digit or pg_"
        )
    return name


def _pool(text: str | None, url: str) -> int:
    if text is None:
        return DEFAULT_POOL
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
        raise UsageError(
            f"{quote(without_secrets(url))} has pool={quote(text)}; pool is a number from 1 to 1000"
        )
    return int(text)


def _folder(text: str | None, url: str) -> Path | None:
    if text is None:
        return None
    if not text or "\0" in text:
        raise UsageError(f"{quote(without_secrets(url))} has an attachments= that names no folder")
    return Path(text).expanduser().absolute()


def _label(parameters: dict[str, str | int], schema: str) -> str:
    host = str(parameters.get("host", parameters.get("hostaddr", "")))
    hosts = host.split(",")
    ports = str(parameters.get("port", "")).split(",")
    if len(ports) < len(hosts):
        ports = ports * len(hosts)
    named = ",".join(f"{h}:{p}" if p else h for h, p in zip(hosts, ports, strict=False))
    return f"postgresql://{named}/{parameters.get('dbname', '')}?schema={schema}"
