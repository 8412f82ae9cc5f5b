"""`turnlog.open(url)`: the composition root, where a store is put together from its parts.

Owns the grammar of store URLs and the table of schemes; a backend is imported when its scheme is used. Other
packages add schemes through the entry-point group `turnlog.backends`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack, cast
from urllib.parse import parse_qsl

from turnlog.errors import UsageError, quote, without_secrets
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.awaitable_context import AwaitableContext
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.registry import SessionRegistry

if TYPE_CHECKING:
    from turnlog.persistence.backend import PersistenceBackend

ENTRY_POINT_GROUP = "turnlog.backends"
"""Group in which packages register a scheme: name = the scheme, value = a `BackendFactory`."""


class StoreOptions(TypedDict, total=False):
    """Keyword options of `open`; all are bounds of the write side and of the memory it may use."""

    write_window: float
    """Seconds from the first waiting event to the start of its write (D1); 0 is the next turn of the loop."""
    pending_budget: int
    """Bytes of one session that may wait to become durable (D4)."""
    pending_reserve: int
    """Bytes beyond the budget for events that close something (D4)."""
    prepared_sessions: int
    """How many sessions that were read and not published are kept for reuse."""
    prepared_bytes: int
    """Bytes that those may hold together."""


def _shown(url: str) -> str:
    """Quote a store URL for a message, without the password it may hold."""
    return quote(without_secrets(url))


@dataclass(frozen=True, slots=True)
class StoreURL:
    """A store URL taken apart: `scheme:location?key=value&key=value`."""

    scheme: str
    """Lower case."""
    location: str
    """Everything between the first colon and the first question mark, as written."""
    parameters: dict[str, str] = field(default_factory=dict)
    """The options behind the question mark, percent-decoded."""
    text: str = ""
    """The whole URL as written, for messages and for backends that hand it to a driver."""

    def path(self) -> Path:
        """Return the location as an absolute path, `~` expanded; nothing is touched.

        Returns:
            An absolute path; it need not exist.

        Raises:
            UsageError: The location is empty, or holds a NUL, or `~` has no home.
        """
        if not self.location:
            raise UsageError(f"{_shown(self.text)} names no folder; write {self.scheme}:PATH")
        if "\0" in self.location:
            raise UsageError(f"{_shown(self.text)} holds a NUL byte, which no path may hold; remove it")
        expanded = os.path.expanduser(self.location)  # Path raises RuntimeError without a home
        if expanded.startswith("~"):
            raise UsageError(
                f"{_shown(self.text)} names a home folder that is not known; write the path in full"
            )
        return Path(os.path.abspath(expanded))  # resolve() would follow symlinks

    def accept(self, *names: str) -> None:
        """Refuse parameters that the backend does not know.

        Args:
            names: The parameters it knows.

        Raises:
            UsageError: There is another one.
        """
        for name in self.parameters:
            if name not in names:
                known = f"it takes {', '.join(names)}" if names else "it takes none"
                raise UsageError(f"{_shown(self.text)} has the unknown option {quote(name)}; {known}")

    def choice(self, name: str, *values: str) -> str | None:
        """Return a parameter that has one of a few values, or None when it is absent.

        Args:
            name: The parameter.
            values: What it may be.

        Returns:
            The value, or None.

        Raises:
            UsageError: It has another value.
        """
        value = self.parameters.get(name)
        if value is not None and value not in values:
            raise UsageError(
                f"{_shown(self.text)} has {name}={quote(value)}; {name} is one of {', '.join(values)}"
            )
        return value


@dataclass(frozen=True, slots=True)
class OpenedBackend:
    """A backend as a factory hands it over."""

    backend: PersistenceBackend
    """The hooks."""
    own_folder: Path | None = None
    """Folder for turnlog's own files, attachments among them; None keeps attachments in memory."""


BackendFactory: TypeAlias = Callable[[StoreURL], OpenedBackend]
"""Makes a backend for one URL. Raises UsageError for a URL that cannot be right; does no slow I/O."""


def parse_store_url(url: str) -> StoreURL:
    """Take a store URL apart; nothing is looked up.

    Args:
        url: For example `jsonl:~/.turnlog/sessions?compression=none`.

    Returns:
        Its parts.

    Raises:
        UsageError: No scheme, or an option without a value, or an option given twice.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or not scheme.isascii() or not scheme.replace("+", "").replace("-", "").isalnum():
        raise UsageError(f"{_shown(url)} is not a store URL; write jsonl:PATH for a folder, or memory:")
    location, _, query = rest.partition("?")
    parameters: dict[str, str] = {}
    if query:
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
        except ValueError as error:
            raise UsageError(f"{_shown(url)} has options that are not key=value pairs joined by &") from error
        for name, value in pairs:
            if name in parameters:
                raise UsageError(f"{_shown(url)} gives the option {quote(name)} twice; give it once")
            parameters[name] = value
    return StoreURL(scheme.lower(), location, parameters, url)


def _memory(url: StoreURL) -> OpenedBackend:
    from turnlog.backends.memory import MemoryBackend  # loaded with its scheme only

    url.accept()
    if url.location:
        raise UsageError(f"{_shown(url.text)} names a place; a memory store has none, write memory:")
    return OpenedBackend(MemoryBackend())


def _jsonl(url: StoreURL) -> OpenedBackend:
    from turnlog.backends.jsonl.backend import JsonlBackend  # loaded with its scheme only

    url.accept("compression", "mixed")
    root = url.path()
    compression = url.choice("compression", "none", "zstd")
    mixed = url.choice("mixed", "0", "1") == "1"
    return OpenedBackend(JsonlBackend(root, compression=compression, mixed=mixed), root / ".turnlog")


def _sqlite(url: StoreURL) -> OpenedBackend:
    from turnlog.backends.sqlite.backend import SqliteBackend  # loaded with its scheme only

    url.accept()
    path = url.path()
    return OpenedBackend(SqliteBackend(path), path.with_name(f"{path.name}.turnlog"))


def _postgresql(url: StoreURL) -> OpenedBackend:
    try:
        from turnlog.backends.postgres.address import parse_address  # loaded with its scheme only
        from turnlog.backends.postgres.backend import PostgresBackend
    except ImportError as error:
        raise UsageError(
            f"a {url.scheme} store needs the PostgreSQL driver ({error}); install turnlog[postgres]"
        ) from error

    address = parse_address(url.text)
    return OpenedBackend(PostgresBackend(address), address.attachments)


_BUILT_IN: dict[str, BackendFactory] = {
    "jsonl": _jsonl,
    "memory": _memory,
    "postgres": _postgresql,  # the driver takes either spelling
    "postgresql": _postgresql,
    "sqlite": _sqlite,
}


def _factory(url: StoreURL) -> BackendFactory:
    built_in = _BUILT_IN.get(url.scheme)
    if built_in is not None:
        return built_in
    found = entry_points(group=ENTRY_POINT_GROUP)
    for entry in found:
        if entry.name == url.scheme:
            return cast("BackendFactory", entry.load())
    known = sorted({*_BUILT_IN, *(entry.name for entry in found)})
    raise UsageError(
        f"{_shown(url.text)} has the scheme {quote(url.scheme)}, which no installed backend serves; "
        f"known schemes are {', '.join(known)} (for a folder write jsonl:PATH)"
    )


def open(url: str, **options: Unpack[StoreOptions]) -> AwaitableContext[SessionStore]:
    """Open a store; `async with turnlog.open(url) as store`, or await it and close it yourself.

    Args:
        url: `jsonl:PATH`, `jsonl:PATH?compression=none|zstd`, with `&mixed=1` against the encoding that the
            root already has, `sqlite:PATH`, `postgresql://HOST/DATABASE` (extra `postgres`), `memory:`, or
            the scheme of an installed backend; `~` is expanded in paths.
        options: See `StoreOptions`.

    Returns:
        The store once awaited or entered.

    Raises:
        UsageError: The URL or an option cannot be right; raised at once, nothing was touched.
        BackendError: The place cannot be used; raised when awaited.
    """
    unknown = set(options) - StoreOptions.__annotations__.keys()
    if unknown:
        raise UsageError(
            f"{', '.join(sorted(unknown))} is no option of turnlog.open; "
            f"the options are {', '.join(StoreOptions.__annotations__)}"
        )
    parsed = parse_store_url(url)
    factory = _factory(parsed)

    async def start() -> SessionStore:
        opened = factory(parsed)
        registry = SessionRegistry(session_type=LiveSession)
        coordinator = PersistenceCoordinator(opened.backend, registry, **options)
        return SessionStore(coordinator, registry, AttachmentStore(opened.own_folder))

    return AwaitableContext("turnlog.open", start)
