"""Kills a forked writer with SIGKILL at one chosen system call, and enumerates the calls worth choosing.

Owns the strace machinery: fork a child that is already imported and warm, attach, let it go, reap it. What
the child writes is in `scenarios`, what is checked afterwards in the tests.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SYSCALLS = (
    "openat,read,pread64,write,pwrite64,pwritev,pwritev2,fsync,fdatasync,mkdir,mkdirat,link,linkat,rename,renameat,"
    "renameat2,unlink,unlinkat,ftruncate,truncate,flock,close,fstat,newfstatat,stat,lstat,statx,lseek,getdents64,"
    "chmod,fchmod,copy_file_range,sendfile"
)
"""Everything a writer asks of the file system; names that this kernel or strace lacks are dropped."""

_CALL = re.compile(r"^(\d+)\s+(\w+)\(")


@dataclass(frozen=True, slots=True)
class KillPoint:
    """The `nth` (1-based) entry of any one thread into `syscall`."""

    syscall: str
    nth: int


@dataclass(slots=True)
class Outcome:
    """What one run of the writer left behind."""

    acknowledged: list[bytes]
    """Lines that the writer sent after each acknowledgement, in order."""
    killed: bool
    calls: list[tuple[str, str]] = field(default_factory=list)
    """`(thread id, syscall)` in order of entry, for a counting run."""


def have_strace() -> bool:
    """Whether strace is installed (the lane is skipped with a message elsewhere, and fails in CI)."""
    return shutil.which("strace") is not None


def run_writer(
    writer: Callable[[int], None],
    trace: Path,
    kill_at: KillPoint | None = None,
    *,
    fault: str = "signal=SIGKILL",
) -> Outcome:
    """Run `writer(ack_fd)` in a forked child under strace, killing it, or doing something else, at `kill_at`.

    Args:
        writer: Writes one line to the descriptor after each acknowledgement; called once strace is attached.
        trace: Where strace writes its record.
        kill_at: The call at whose entry the fault is injected; None counts calls only.
        fault: What happens there in the notation of strace: by default the whole process dies.

    Raises:
        RuntimeError: The writer failed by itself, which no kill explains.
    """
    go_read, go_write = os.pipe()
    ack_read, ack_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(writer, go_read, ack_write)
    os.close(go_read)
    os.close(ack_write)
    inject = [] if kill_at is None else ["-e", f"inject={kill_at.syscall}:{fault}:when={kill_at.nth}"]
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", f"trace={_known()}", *inject, "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        _await_attached(pid, tracer)
        with contextlib.suppress(
            BrokenPipeError
        ):  # the point was the wait itself, and the child is dead already
            os.write(go_write, b"g")
        os.close(go_write)
        with os.fdopen(ack_read, "rb") as acks:
            acknowledged = [line for line in acks.read().split(b"\n") if line]
        _, status = os.waitpid(pid, 0)
        tracer.wait()
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and status != 0:
        raise RuntimeError(f"the writer failed by itself (status {status}); see {trace} and its stderr")
    return Outcome(acknowledged, killed, list(_calls(trace)) if kill_at is None else [])


def kill_points(calls: list[tuple[str, str]]) -> list[KillPoint]:
    """Every distinct kill point that the calls of one counting run offer, in order of first entry."""
    counts: dict[tuple[str, str], int] = {}
    points: dict[KillPoint, None] = {}
    for thread, name in calls:
        counts[thread, name] = counts.get((thread, name), 0) + 1
        points[KillPoint(name, counts[thread, name])] = None
    return list(points)


def _child(writer: Callable[[int], None], go: int, ack: int) -> None:
    """Wait for the tracer, write, and leave without any of the parent's clean-up."""
    try:
        os.read(go, 1)
        writer(ack)
    except BaseException:  # noqa: BLE001 - the child reports everything and must not return into the parent's stack
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
    os._exit(0)


def _await_attached(pid: int, tracer: subprocess.Popen[bytes]) -> None:
    """Return once strace traces every thread of `pid`, or has seen its end."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if tracer.poll() is not None:
            message = tracer.stderr.read().decode() if tracer.stderr else ""
            if tracer.returncode == 0:
                return
            raise RuntimeError(f"strace could not attach: {message}")
        threads = [
            Path(f"/proc/{pid}/task/{tid}/status").read_text() for tid in os.listdir(f"/proc/{pid}/task")
        ]
        if not any("TracerPid:\t0\n" in status for status in threads):
            return
        time.sleep(0.001)
    raise RuntimeError("strace did not attach within 20 s")


_known_calls: str | None = None


def _known() -> str:
    """The names of `SYSCALLS` that this strace accepts, found out once."""
    global _known_calls
    if _known_calls is None:
        names = SYSCALLS.split(",")
        accepted = [n for n in names if _accepts(n)]
        _known_calls = ",".join(accepted)
    return _known_calls


def _accepts(name: str) -> bool:
    done = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={name}", "true"], capture_output=True, check=False
    )
    return done.returncode == 0


def _calls(trace: Path) -> Iterator[tuple[str, str]]:
    for line in trace.read_text(errors="replace").splitlines():
        found = _CALL.match(line)
        if found:
            yield found.group(1), found.group(2)
