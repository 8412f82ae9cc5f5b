"""Logs in every state, written as the format says and without the backend's help; results of runs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turnlog import SessionEvent, SessionHeader
from turnlog.backends.jsonl.layout import place_of
from turnlog.events import frames
from turnlog.events.header import header_line
from turnlog.testing.scripts import EPOCH_MS, LogScript


@dataclass(frozen=True)
class Result:
    """What a run of the command line left."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


def command(*arguments: object) -> list[str]:
    """Return the command line that runs turnlog with these arguments."""
    return [sys.executable, "-m", "turnlog.cli", *(str(argument) for argument in arguments)]


def plant(
    root: Path,
    session_id: str,
    events: Sequence[SessionEvent],
    *,
    cwd: str | None = "/srv/app",
    encoding: Literal["none", "zstd"] = "none",
    tail: bytes = b"",
    header: bytes | None = None,
) -> Path:
    """Write a log file as the format says, followed by any bytes.

    Args:
        root: The root.
        session_id: Names the folder and stands in the header.
        events: What the log holds.
        cwd: Stands in the header.
        encoding: Of the file.
        tail: Raw bytes behind the last event.
        header: Another header line.

    Returns:
        The file.
    """
    meta = SessionHeader(id=session_id, created_at=EPOCH_MS, cwd=cwd)
    path = Path(place_of(str(root), meta, encoding).log_path)
    path.parent.mkdir(parents=True, mode=0o700)
    head = header_line(meta) if header is None else header
    body = b"".join(event.line + b"\n" for event in events)
    parts = (head, body) if encoding == "none" else (frames.compress(head), frames.compress(body))
    path.write_bytes(b"".join(parts) + tail)
    return path


def finished() -> list[SessionEvent]:
    """Return a log of two whole turns."""
    return LogScript().turn(calls=["c-1"]).turn("And now?").events


def interrupted() -> list[SessionEvent]:
    """Return a log that ends inside a tool call, with another call not started."""
    return (
        LogScript().turn().start().step().user().assistant("Both.", calls=["c-1", "c-2"]).call("c-1").events
    )


def snapshot(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and modification time of every file below a folder."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def sent_to(terminal: int) -> bytes:
    """Read a pseudo terminal until whoever writes to its other side has gone."""
    pieces = []
    with contextlib.suppress(OSError):  # how a terminal says that its last user has gone
        while piece := os.read(terminal, 1 << 16):
            pieces.append(piece)
    return b"".join(pieces)
