"""A real PostgreSQL for tests: a temporary cluster on a Unix socket, stopped by pid.

Owns finding the programs, making a cluster as an unprivileged user, and starting, killing and stopping it.
The system's own clusters are never touched. Without the programs tests are skipped; under CI that fails.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import pq

from tests.faults.lanes import missing

PORT: Final = 5432
START_SECONDS: Final = 60.0
_PDEATHSIG: Final = 1
_SETTINGS: Final[Mapping[str, str]] = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
    "autovacuum_naptime": "1h",
}


def bin_folder() -> Path | None:
    """Return the folder of the newest installed PostgreSQL server, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    beside = shutil.which("initdb")
    return None if beside is None else Path(beside).resolve().parent


def needed_bin_folder() -> Path:
    """Return the folder of the server's programs; skip the test without them, fail it under CI."""
    found = bin_folder()
    if found is None:
        missing("needs the PostgreSQL server (Debian package postgresql)")
    return found


def _account() -> str | None:
    """Return the user to run the server as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return missing("needs an unprivileged user (postgres or nobody) to run the server as")


def _end_with_parent() -> None:
    """In the child: be shut down when the thread that starts the server ends, however it ends."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGQUIT)


class Cluster:
    """One cluster in a folder of its own, with trust authentication on its socket.

    Args:
        settings: Server settings besides those that make it small and local.
        folder: A data folder that was made elsewhere, for example by a base backup; otherwise a new one.
        namespace: The network namespace to run the server in; needs root.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        namespace: str | None = None,
    ) -> None:
        self.bin = needed_bin_folder()
        self.settings = {**_SETTINGS, **(settings or {})}
        self.namespace = namespace
        self.server: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection[tuple[Any, ...]] | None = None
        self._account = _account()
        self.home = Path(tempfile.mkdtemp(prefix="turnlog-pg-"))
        self.data = self.home / "data"
        if self._account is not None:
            user = pwd.getpwnam(self._account)
            os.chown(self.home, user.pw_uid, user.pw_gid)
        atexit.register(self.remove)
        if folder is None:
            self.run(
                "initdb", "-A", "trust", "-U", "turnlog", "--locale=C", "-E", "UTF8", "-N", "-D", self.data
            )
        else:
            shutil.move(folder, self.data)

    def run(self, program: str, *args: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Run one of the server's programs to its end, as the server's user."""
        subprocess.run(
            [self.bin / program, *args],
            check=True,
            capture_output=True,
            cwd="/",
            env={**os.environ, **(env or {})},
            **self._identity(),
        )

    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        group = pwd.getpwnam(self._account).pw_gid
        return {"user": self._account, "group": group, "extra_groups": []}

    @property
    def log(self) -> Path:
        """What the server has to say."""
        return self.home / "log"

    def start(self) -> None:
        """Start the server and wait until it answers; in the main thread, with which the server ends."""
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        command = [str(self.bin / "postgres"), "-D", str(self.data), "-k", str(self.home), "-p", str(PORT)]
        prefix: list[str] = []
        if self.namespace is not None:
            # Entering it takes root, running the server takes somebody else.
            prefix = ["ip", "netns", "exec", self.namespace, "setpriv", "--pdeathsig", "QUIT"]
            prefix += [f"--reuid={self._account}", f"--regid={self._account}", "--clear-groups", "--"]
        # A server that was killed leaves its lock behind, and another process may have its number now.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.server = server = subprocess.Popen(
                [*prefix, *command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=_end_with_parent,
                **({} if prefix else self._identity()),
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            # That it may refuse a connection is the test's doing; what counts is that it takes them.
            if pq.PGconn.ping(self.conninfo().encode()) == pq.Ping.OK:
                return
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def pid(self) -> int:
        """Return the process id of the server itself, also under a prefix."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Shut down by pid: SIGINT ends connections first, SIGQUIT is a crash with notice."""
        if self._admin is not None:
            self._admin.close()
        if self.server is not None and self.server.poll() is None:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(self.pid(), how)
            self.server.wait(START_SECONDS)
        self.server = None

    def kill(self) -> None:
        """End every process of the server at once, as the loss of its machine's power would."""
        assert self.server is not None
        main = self.pid()
        os.kill(main, signal.SIGSTOP)  # so that it starts no more children, and answers no death of theirs
        while _state(main) != "T":
            time.sleep(0.001)
        # Those that are still dying when it starts again would hold its shared memory.
        dying = list(_children(main))
        for child in dying:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
        os.kill(main, signal.SIGKILL)
        self.server.wait(START_SECONDS)
        self.server = None
        for child in dying:
            select.select([child], [], [], START_SECONDS)
            os.close(child)

    def remove(self) -> None:
        """Stop the server and remove everything."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.home, ignore_errors=True)
        atexit.unregister(self.remove)

    def wal_syncs(self) -> int:
        """Return how often the server has synced its log, as far as connections have reported it."""
        admin = self.admin()
        admin.execute("select pg_stat_clear_snapshot()")
        row = admin.execute("select wal_sync from pg_stat_wal").fetchone()
        assert row is not None
        return int(row[0])

    def conninfo(self, *, user: str = "turnlog", database: str = "postgres") -> str:
        """Return the driver's way to the cluster."""
        return f"host={self.home} port={PORT} user={user} dbname={database}"

    def url(self, *, schema: str = "turnlog", user: str = "turnlog", more: str = "") -> str:
        """Return the store URL of a schema of the cluster."""
        return f"postgresql://{user}@/postgres?host={self.home}&port={PORT}&schema={schema}{more}"

    def admin(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return a connection for access out of band, the same one for as long as it works."""
        if self._admin is None or self._admin.closed:
            self._admin = psycopg.connect(self.conninfo(), autocommit=True)
        return self._admin


def _state(pid: int) -> str:
    """Return the letter of a process's state, `T` when it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _children(pid: int) -> Iterator[int]:
    """Yield a descriptor of each child that lives; it becomes readable when the child has ended."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            yield os.pidfd_open(int(child))


@functools.cache
def shared_cluster() -> Cluster:
    """Return the one cluster of this test process, started on first use."""
    cluster = Cluster()
    cluster.start()
    return cluster


_schemas = iter(range(1, 1 << 30))


def fresh_schema() -> str:
    """Return the name of a schema that nobody has used in this process's cluster."""
    return f"t{next(_schemas)}"


def needs_root(what: str) -> None:
    """Skip a test that needs root; under CI that fails."""
    if os.geteuid() != 0:
        missing(f"needs root, {what}")
