"""Worker threads for blocking calls, whose results reach the event loop together.

Owns the threads of one backend and the way back to the loop. A hundred sessions that flush at once cost one
wake-up of the loop per burst of results, not one per call. What is called, and in which order, is up to the
backend.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from turnlog.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


class _Call(Generic[T]):
    """One call on its way through a thread."""

    __slots__ = ("args", "error", "function", "future", "kwargs", "result")

    def __init__(
        self,
        future: asyncio.Future[T],
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.future = future
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call; whatever it raises belongs to whoever awaits it."""
        try:
            self.result = self.function(*self.args, **self.kwargs)
        except BaseException as error:  # noqa: BLE001 - carried to the awaiting task, SystemExit included
            self.error = error

    def settle(self) -> None:
        """Hand the outcome over, on the loop; a cancelled future, or one of a closed loop, takes none."""
        if self.future.done() or self.future.get_loop().is_closed():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]  # T unless an error is set


class Aside:
    """A call that a thread leaves to another one while it does something else.

    Whoever comes first makes it: a thread that is free, or the one that asks for the result. So nobody
    waits for a thread that waits itself.
    """

    __slots__ = ("_ended", "_error", "_function", "_taken")

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._taken = threading.Lock()
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call unless somebody has begun to."""
        if not self._taken.acquire(blocking=False):
            return
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - carried to whoever asks for the result
            self._error = error
        finally:
            self._ended.set()

    def end(self) -> None:
        """Wait until the call has ended, however; afterwards nothing that it uses is in use."""
        self.run()
        self._ended.wait()

    def result(self) -> None:
        """Wait for the end and raise what the call raised."""
        self.end()
        if self._error is not None:
            raise self._error


_Work: TypeAlias = "_Call[Any] | None"


class IoThreads:
    """A bounded set of daemon threads, started as they are needed.

    Belongs to the event loop that first uses it. A thread that dies with the process leaves what a kill
    leaves (D2).

    Args:
        name: Prefix of the threads' names.
        threads: How many calls may block at a time.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._limit = threads
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._offered: SimpleQueue[Aside | None] = SimpleQueue()
        self._helper: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._unanswered = 0
        self._finished: deque[_Call[Any]] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Start a blocking call on a thread.

        Args:
            function: Called on some thread, with `args` and `kwargs`.

        Returns:
            A future of the running loop with what the call returns or raises. Cancelling it stops nothing.

        Raises:
            UsageError: The threads are closed, or belong to another event loop. The caller is at fault.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._bind(loop)
        if self._closed:
            raise UsageError(f"{self._name} is closed; open the store again")
        self._unanswered += 1
        if self._unanswered > len(self._threads) < self._limit:
            self._start()
        future: asyncio.Future[T] = loop.create_future()
        self._work.put(_Call(future, function, args, kwargs))
        return future

    def aside(self, function: Callable[[], object]) -> Aside:
        """Offer a blocking call to a thread that is there for this alone; called on any thread.

        It has a queue of its own, because calls that alternate between two threads are slower.

        Args:
            function: What to call.

        Returns:
            The call; whoever offers it waits for its end.
        """
        offered = Aside(function)
        with self._start_lock:
            if self._helper is None and not self._closed:
                self._helper = threading.Thread(target=self._help, name=f"{self._name}-aside", daemon=True)
                self._helper.start()
        self._offered.put(offered)
        return offered

    async def aclose(self) -> None:
        """Let everything that was started finish, then end the threads. May be called twice."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._work.put(None)
        self._offered.put(None)
        for thread in (*self._threads, *([self._helper] if self._helper is not None else ())):
            if thread.is_alive():
                await asyncio.get_running_loop().run_in_executor(None, thread.join)
        self._deliver()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise UsageError(f"{self._name} belongs to another event loop; open a store in this one")
        self._loop = loop

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        """Make calls until the threads are closed."""
        while (call := self._work.get()) is not None:
            call.run()
            self._finished.append(call)
            del call  # or the last call of an idle thread keeps its arguments alive
            if not self._woken:
                self._woken = True
                self._wake()

    def _help(self) -> None:
        """Make the calls that were left aside, unless whoever left them was faster."""
        while (aside := self._offered.get()) is not None:
            aside.run()
            del aside

    def _wake(self) -> None:
        loop = self._loop
        assert loop is not None  # nothing is called before the first `run`
        try:
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            self._woken = False  # the loop is closed, so nobody waits; another one may follow

    def _deliver(self) -> None:
        """Settle every call that has finished, on the loop."""
        self._woken = (
            False  # before the first look: a call that finishes after the last one wakes the loop again
        )
        while self._finished:
            self._unanswered -= 1
            self._finished.popleft().settle()
