"""What an `ID` on the command line means: an exact id, a unique prefix, or a log file.

Owns that lookup and the opening of the store behind it. A file inside a root opens that root in place; a
file from elsewhere is read from a temporary copy, so that nothing is ever written beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import turnlog
from turnlog.backends.jsonl.layout import ENCODING_OF_NAME, id_of_segment, place_of
from turnlog.cli.options import Settings
from turnlog.errors import (
    BackendError,
    CorruptLogError,
    LogError,
    SessionNotFoundError,
    UnsupportedFormatError,
    UsageError,
    quote,
    without_secrets,
)
from turnlog.events import frames
from turnlog.events.header import SessionHeader, parse_header_line

CANDIDATES = 5
"""How many sessions an ambiguous prefix names in its message."""

LOG_ENDINGS = (".jsonl", ".jsonl.zstd")

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class NothingNamedError(SessionNotFoundError):
    """No session in the store has this id, and none begins with it."""

    def __init__(self, *, session_id: str, store: str, is_exact: bool) -> None:
        super().__init__(session_id=session_id)
        self.store = store
        tried = "; a whole id is needed here" if is_exact else " or begins with it"
        advice = _what_stands_there(session_id) or "see: turnlog list"
        self.args = (f"no session in {store} has the id {quote(session_id)}{tried} ({advice})",)


def _what_stands_there(name: str) -> str | None:
    """Say why a name that looks like a path, or is one, does not name a log; None if it is neither."""
    with suppress(OSError, RuntimeError, ValueError):
        path = Path(name).expanduser()
        if path.is_dir():
            logs = [log for log in ENCODING_OF_NAME if (path / log).is_file()]
            if len(logs) > 1:
                return "this folder holds two logs; give the path of one of them"
            if os.sep not in name and logs:
                return f"for the session in this folder give .{os.sep}{name}"
            return "it is a folder without a log; a whole store is given as --store jsonl:PATH"
        if path.exists():
            return "the file of this name is no log, which ends in .jsonl or .jsonl.zstd"
        if name.endswith(LOG_ENDINGS):
            return "there is no such file, either"
    return None


@dataclass(frozen=True, slots=True)
class Target:
    """One session in an open store."""

    store: turnlog.SessionStore
    session_id: str
    place: str
    """The store's URL or the file's path, as people gave it."""
    copied_from: str | None = None
    """The file of which the store holds a temporary copy, or None for a store in place."""


@asynccontextmanager
async def opened(
    settings: Settings, name: str, *, exact: bool = False, writes: bool = False
) -> AsyncIterator[Target]:
    """Open the store that holds a session, and find the session in it.

    Args:
        settings: Tell the store, unless `name` is a file.
        name: An id, a prefix of one, or the path of a log file or its folder.
        exact: Whether a prefix is refused.
        writes: Whether the command changes the store; a file outside of any root is refused then.

    Yields:
        The session. The store is closed afterwards.

    Raises:
        SessionNotFoundError: Nothing has this name.
        UsageError: The name is empty or ambiguous, or the file cannot be written in place.
    """
    path = log_file(name)
    if path is None:
        async with turnlog.open(settings.url) as store:
            yield Target(store, await _resolve(store, settings.url, name, exact=exact), settings.url)
        return
    root = _root_of(path)
    session_id = id_of_segment(path.parent.name) if root is not None else None
    if root is not None and session_id is not None:
        async with turnlog.open(f"jsonl:{root}") as store:
            if writes or not await _is_stored_twice(store, session_id):
                yield Target(store, session_id, str(path))
                return
        # The store cannot tell which of the two is meant, and this path does.
    elif writes:
        raise UsageError(
            f"{quote(name)} is not in a store (PROJECT/ID/session.jsonl below a root), so it is only read"
        )
    async with _copied(path) as (store, session_id):
        try:
            yield Target(store, session_id, str(path), copied_from=str(path))
        except LogError as error:
            raise relocated(error, str(path)) from error


async def _is_stored_twice(store: turnlog.SessionStore, session_id: str) -> bool:
    try:
        await store.read_from(session_id, 0, limit=1)
    except CorruptLogError as error:
        return error.kind == "duplicate"
    except (LogError, BackendError):
        pass  # the command meets it again and reports it
    return False


def log_file(name: str) -> Path | None:
    """Return the log file that a name on the command line points to, or None if it is an id.

    Args:
        name: A path that ends in `.jsonl` or `.jsonl.zstd`, or the path of a session's folder, written with
            a separator, if it holds one log. No other file is ever opened.

    Returns:
        The file as an absolute path, or None.
    """
    is_log = name.endswith(LOG_ENDINGS)
    if "\0" in name or not (is_log or os.sep in name):
        return None
    # A name too long for a path, or a home that does not exist, is not a file.
    with suppress(OSError, RuntimeError):
        path = Path(os.path.abspath(Path(name).expanduser()))
        if is_log and path.is_file():
            return path
        logs = [path / log for log in ENCODING_OF_NAME if (path / log).is_file()] if path.is_dir() else []
        if len(logs) == 1:
            return logs[0]
    return None


def _root_of(path: Path) -> Path | None:
    """Return the root that a log file lies in, or None when its place is not one of a root."""
    project = path.parent.parent.name
    in_root = path.name in ENCODING_OF_NAME and (
        project == "_no-cwd" or (len(project) > 4 and project.startswith("--") and project.endswith("--"))
    )
    root = path.parent.parent.parent
    # A question mark would end the path inside a store URL.
    return root if in_root and "?" not in str(root) else None


async def _resolve(store: turnlog.SessionStore, url: str, name: str, *, exact: bool) -> str:
    if not name:
        raise UsageError("an empty id names no session; give an id, a prefix of one, or a log file")
    try:
        await store.read_from(name, 0, limit=1)
    except SessionNotFoundError:
        pass
    except LogError as error:
        # It is there and damaged or of another format: the command itself reports that.
        if not isinstance(error, (CorruptLogError, UnsupportedFormatError)):
            raise
        return name
    else:
        return name
    found: list[str] = []
    if not exact:
        found = sorted([i async for i in _ids(store) if i.startswith(name)])
    if len(found) > 1:
        shown = ", ".join(found[:CANDIDATES]) + (", …" if len(found) > CANDIDATES else "")
        raise UsageError(f"{quote(name)} begins {len(found)} ids in {without_secrets(url)}: {shown}")
    if not found:
        raise NothingNamedError(session_id=name, store=without_secrets(url), is_exact=exact)
    return found[0]


async def _ids(store: turnlog.SessionStore) -> AsyncIterator[str]:
    async for info in store.list():
        if info.session_id is not None:
            yield info.session_id


@asynccontextmanager
async def _copied(path: Path) -> AsyncIterator[tuple[turnlog.SessionStore, str]]:
    """Open a temporary root that holds a copy of a file, and name the session in it."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-"))
    try:
        session_id = _copy_into(folder, path)
        async with turnlog.open(f"jsonl:{folder}") as store:
            yield store, session_id
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_into(root: Path, path: Path) -> str:
    """Place a copy of a file where a root has it; returns the session's id."""
    content = path.read_bytes()
    is_zstd = content.startswith(_ZSTD_MAGIC) or path.suffix == ".zstd"
    try:
        header = _header(content, is_zstd=is_zstd, path=path)
    except CorruptLogError:
        # What comes after may be good: the name stands in for the id, and the damage is found in its place.
        header = SessionHeader(id=_id_from_name(path), created_at=0)
    place = place_of(str(root), header, "zstd" if is_zstd else "none")
    Path(place.folder).mkdir(mode=0o700, parents=True)
    Path(place.log_path).write_bytes(content)
    return header.id


def _id_from_name(path: Path) -> str:
    """Return the id that a log's folder stands for, or for a log of another name that name."""
    if path.name in ENCODING_OF_NAME:
        return id_of_segment(path.parent.name) or path.parent.name or "session"
    return path.name.removesuffix(".zstd").removesuffix(".jsonl") or "session"


def _header(content: bytes, *, is_zstd: bool, path: Path) -> SessionHeader:
    first = content
    if is_zstd:
        try:
            spans = frames.scan(content).spans
            first = frames.decompress(content[spans[0][0] : spans[0][1]]) if spans else b""
        except frames.FrameError as error:
            raise CorruptLogError(
                session_id=None, reason=error.reason, offset=error.offset, kind="frame", path=str(path)
            ) from error
    return parse_header_line(first[: first.find(b"\n") + 1], path=str(path))


def relocated(error: LogError, path: str) -> LogError:
    """Say about a file what was found in its copy.

    Args:
        error: What reading the copy raised.
        path: The file as people gave it.

    Returns:
        The same finding about `path`; an error that names no path as it is.
    """
    if isinstance(error, CorruptLogError):
        return CorruptLogError(
            session_id=error.session_id,
            reason=error.reason,
            line=error.line,
            offset=error.offset,
            seq=error.seq,
            kind=error.kind,
            path=path,
        )
    if isinstance(error, UnsupportedFormatError):
        return UnsupportedFormatError(
            session_id=error.session_id,
            found=error.found,
            supported=error.supported,
            direction=error.direction,
            path=path,
            seq=error.seq,
        )
    return error
