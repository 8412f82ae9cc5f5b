"""A thing that takes time to open: `await` it to keep it, or `async with` it to have it closed again.

Owns only that choice; what opening and closing mean is the business of the thing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from turnlog.errors import UsageError


class AsyncClosing(Protocol):
    """Anything that closes itself when its `async with` block is left."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


T = TypeVar("T", bound=AsyncClosing)


class AwaitableContext(Generic[T]):
    """Opens once: by `await`, whose result the caller closes, or by `async with`, which closes it.

    Nothing happens before one of the two.
    """

    __slots__ = ("_opened", "_start", "_what")

    def __init__(self, what: str, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Remember how to open.

        Args:
            what: The call that made this, for messages.
            start: Makes the coroutine that opens; called at most once.
        """
        self._what = what
        self._start: Callable[[], Coroutine[Any, Any, T]] | None = start
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(kind, error, trace)

    def _open(self) -> Coroutine[Any, Any, T]:
        start, self._start = self._start, None
        if start is None:
            raise UsageError(f"{self._what} was awaited or entered before; call it again for another one")
        return start()
