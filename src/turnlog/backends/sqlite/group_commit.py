"""The writer thread: everything that waits goes into one transaction, and one sync serves all of it.

Owns the queue, the transaction with a savepoint per job, and who is told what. While one commit is being
synced the next jobs gather, so that a hundred sessions that flush together need few syncs and a single one
waits for nobody. What a job does is its caller's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from turnlog.backends.sqlite.failures import refused, typed
from turnlog.backends.sqlite.links import Link
from turnlog.errors import TurnlogError, UsageError

T = TypeVar("T")

_LARGEST_GROUP: Final = 1000
_MOVED: Final = "the database file was removed or replaced while it was in use"


class Job:
    """One unit of work within a group.

    Args:
        work: Runs inside a savepoint, perhaps more than once; its statements are all it may change.
        loop: The event loop that waits for it.
    """

    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None


class GroupCommit:
    """Runs jobs on one thread, as many as wait in one transaction.

    Args:
        path: The database, for messages.
        connect: Opens the connection; called on the thread, and again after a failure.
        first: Called in the first transaction of each connection, before the jobs.
        last: Called in each transaction that changed something, before it is committed.
    """

    def __init__(
        self,
        path: str,
        connect: Callable[[], Link],
        *,
        first: Callable[[sqlite3.Connection], None],
        last: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._path = path
        self._connect = connect
        self._first = first
        self._last = last
        self._is_new = False
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._closed = self._forgotten = False
        self._pid = os.getpid()
        self.commits = 0
        """Transactions committed so far, for those who count."""

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work in the next group and return when its commit is durable.

        Args:
            work: See `Job`.

        Returns:
            What the work returned.

        Raises:
            UsageError: The writer is closed, or belongs to the process that this one was forked from.
            TurnlogError: What the work raised; nothing of it is stored, its neighbours' work is.
            BackendError: The commit failed; the outcome is unknown unless `.wrote_nothing` is true.
        """
        if self._closed or os.getpid() != self._pid:
            raise UsageError("this store is closed; open it again in the process that uses it")
        job = Job(work, asyncio.get_running_loop())
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="turnlog-sqlite", daemon=True)
            self._thread.start()
        self._queue.put(job)
        result: T = await job.future
        return result

    def close(self) -> None:
        """Finish what waits, close the connection, end the thread. Blocks."""
        self._closed = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def forget(self) -> None:
        """Take no more jobs and run none that waits; the connection is left as it is, open and untouched."""
        self._closed = self._forgotten = True
        self._queue.put(None)  # wakes the thread where there is one: a forked child has none

    # -- the thread -----------------------------------------------------------------------------

    def _serve(self) -> None:
        is_open = True
        while is_open:
            jobs: list[Job] = []
            is_open = self._take(jobs)
            if self._forgotten:
                return
            if jobs:
                self._run_group(jobs)
                _tell(jobs)
        self._disconnect()

    def _take(self, jobs: list[Job]) -> bool:
        """Wait for one job, then take all that wait; return whether more may come."""
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) >= _LARGEST_GROUP:
                return True
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return True
        return False

    def _run_group(self, jobs: Sequence[Job]) -> None:
        """Run jobs in one transaction; a job that takes the whole of it down is left out of the next try."""
        left = list(jobs)
        while left:
            try:
                db = self._connection()
                db.execute("begin immediate")
                if self._is_new:
                    self._first(db)
            except Exception as error:  # noqa: BLE001  # whatever it is, every job hears of it
                self._fail(left, error, wrote_nothing=True)
                return
            spoiler = next((job for job in left if not self._run_one(db, job)), None)
            if spoiler is None:
                break
            left.remove(spoiler)
        else:
            return
        try:
            if any(job.error is None for job in left):
                self._last(db)
            db.execute("commit")
            self.commits += 1
            self._is_new = False
            if self._link is None or not self._link.is_current:
                raise refused(self._path, _MOVED)
        except Exception as error:  # noqa: BLE001  # as above; whether the commit is stored is not known
            self._fail([job for job in left if job.error is None], error, wrote_nothing=False)

    def _run_one(self, db: sqlite3.Connection, job: Job) -> bool:
        """Run one job in a savepoint; False when SQLite has rolled back the whole transaction with it."""
        job.error = None
        try:
            db.execute("savepoint job")
            job.result = job.work(db)
            db.execute("release job")
        except sqlite3.Error as error:
            job.error = typed(error, self._path, wrote_nothing=True)
            job.error.__cause__ = error
        except Exception as error:  # noqa: BLE001  # it is the caller's, and told to the caller
            job.error = error
        if not db.in_transaction:
            return False
        if job.error is not None:
            db.execute("rollback to job")
            db.execute("release job")
        return True

    def _fail(self, jobs: Sequence[Job], error: Exception, *, wrote_nothing: bool) -> None:
        """Tell jobs of a failure and begin with a new connection next time.

        After a failed sync the pages of the log are in an unknown state; only what is written anew counts.
        """
        self._disconnect()
        for job in jobs:
            if isinstance(error, sqlite3.Error):
                job.error = typed(error, self._path, wrote_nothing=wrote_nothing)
                job.error.__cause__ = error
            elif isinstance(error, TurnlogError) and wrote_nothing:
                job.error = error
            else:
                unknown = refused(self._path, str(error))
                unknown.wrote_nothing = wrote_nothing
                unknown.__cause__ = error
                job.error = unknown

    def _connection(self) -> sqlite3.Connection:
        """Return the open connection; one whose file was moved away is replaced."""
        if self._link is not None and not self._link.is_current:
            self._disconnect()
            raise refused(self._path, _MOVED)
        if self._link is None:
            self._link = self._connect()
            self._is_new = True
        return self._link.db

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _tell(jobs: Sequence[Job]) -> None:
    """Hand results over to the event loops that wait, one call for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, told in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed under its waiters: nobody is left
            loop.call_soon_threadsafe(_resolve, told)


def _resolve(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue  # whoever waited was cancelled; the work is done all the same
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
