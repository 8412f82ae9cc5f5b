"""Who a writer is: facts about this process, and whether the process behind such facts still lives (W1).

Owns the making and judging of `ClaimOwner` values. How a claim is taken and checked is the backend's
business; which claims this process holds is known to `claim_keeper`.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from turnlog.errors import ClaimOwner

_PROC = Path("/proc")
_FACTS = tuple(field.name for field in fields(ClaimOwner))
_START_TIME_FIELD = 19
"""Index of the start time among the fields after the process name in `/proc/PID/stat`."""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


@lru_cache(maxsize=1)
def boot_id() -> str | None:
    """Return the identity of this host's boot, or None where the system does not tell it."""
    return _text(_PROC / "sys/kernel/random/boot_id")


def process_start(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot, or None if it is gone or unknown.

    Args:
        pid: A process id in this process's own pid namespace.
    """
    stat = _text(_PROC / str(pid) / "stat")
    if stat is None:
        return None
    fields = stat.rpartition(")")[2].split()
    return int(fields[_START_TIME_FIELD]) if len(fields) > _START_TIME_FIELD else None


def _has_ended(pid: int) -> bool:
    """Tell whether a process has ended and only waits to be reaped: its locks are gone already."""
    stat = _text(_PROC / str(pid) / "stat")
    return stat is not None and stat.rpartition(")")[2].split()[:1] in (["Z"], ["X"])


def pid_namespace() -> str | None:
    """Return the identity of this process's pid namespace, or None where there is none."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def this_process(since: int | None = None) -> ClaimOwner:
    """Describe this process as a claim owner.

    Args:
        since: When the claim is taken, Unix milliseconds; now by default.

    Returns:
        Everything another process needs to tell whether this one still lives.
    """
    pid = os.getpid()
    return ClaimOwner(
        pid=pid,
        host=socket.gethostname(),
        since=int(time.time() * 1000) if since is None else since,
        boot_id=boot_id(),
        start_time=process_start(pid),
        pid_namespace=pid_namespace(),
    )


def completed(owner: ClaimOwner) -> ClaimOwner:
    """Fill in the facts that `owner` leaves out, where it describes this very process.

    Args:
        owner: Facts as somebody gave them.

    Returns:
        The same facts, or more.
    """
    if owner.pid != os.getpid() or owner.start_time is not None:
        return owner
    mine = this_process(owner.since)
    return replace(owner, boot_id=mine.boot_id, start_time=mine.start_time, pid_namespace=mine.pid_namespace)


def facts_of(owner: ClaimOwner) -> dict[str, Any]:
    """Return an owner's facts as JSON values, as a medium keeps them; unknown ones are left out."""
    return {key: value for key in _FACTS if (value := getattr(owner, key)) is not None}


def owner_of(facts: Mapping[str, Any]) -> ClaimOwner:
    """Return the owner that stored facts describe.

    Args:
        facts: What `facts_of` returned, or another program's idea of it.

    Raises:
        ValueError: They describe none; also `TypeError`, `KeyError` and `AttributeError`, for facts of
            another shape.
    """
    return ClaimOwner(
        pid=int(facts["pid"]),
        host=str(facts["host"]),
        since=int(facts["since"]),
        boot_id=facts.get("boot_id"),
        start_time=facts.get("start_time"),
        pid_namespace=facts.get("pid_namespace"),
    )


def is_alive(owner: ClaimOwner) -> bool | None:
    """Tell whether the process behind a claim still runs, from the process table alone.

    Args:
        owner: Facts that a writer left.

    Returns:
        True or False where it can be known; None for another host or pid namespace.
    """
    if owner.host != socket.gethostname():
        return None
    if owner.boot_id is not None and owner.boot_id != boot_id():
        return False
    if owner.pid_namespace is not None and owner.pid_namespace != pid_namespace():
        return None
    if _has_ended(owner.pid):
        return False
    started = process_start(owner.pid)
    if started is not None:
        return owner.start_time is None or started == owner.start_time
    if sys.platform == "win32":  # pragma: no cover - signal 0 would be an interrupt there
        return None
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it exists and belongs to somebody else
    return True if owner.start_time is None else None  # a reused pid cannot be told apart here
