"""One backend behind its hooks: detection, defaults, typed errors, closed iterators, known outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnlog.backends.memory import MemoryBackend
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    ClaimOwner,
    CorruptLogError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    UsageError,
    WriterFencedError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.backend import StoredEntry, StoredPrefix, supports
from turnlog.persistence.hooks import Hooks, typed, wrote_nothing
from turnlog.testing.faulty_backend import FaultyBackend
from turnlog.testing.scripts import LogScript, header


def test_support_means_that_the_hook_is_there() -> None:
    """An absent hook and one that is None are the same (W1)."""
    backend = FaultyBackend(MemoryBackend())
    assert supports(backend, "claim")
    backend.claim = None  # type: ignore[assignment,method-assign]  # how a wrapper leaves a hook out
    assert not supports(backend, "claim")
    assert not supports(backend, "no_such_hook")


def test_a_backend_without_the_required_hooks_is_refused() -> None:
    """What is missing is named (D2)."""

    class Half:
        name = "half"

        async def load_stored(self, session_id: str) -> StoredPrefix | None:
            return None

    with pytest.raises(UsageError, match="append_batch, commit_repair, list"):
        Hooks(Half())  # type: ignore[arg-type]  # that is the point


async def test_a_stray_exception_becomes_a_backend_error() -> None:
    """Whatever a driver raises reaches callers typed and chained (D2)."""
    faults = FaultyBackend(MemoryBackend())
    hooks = Hooks(faults)
    for error in (OSError("disk"), ValueError("odd"), KeyError("x")):
        faults.fail("load_stored", error=error)
        with pytest.raises(BackendError, match="load_stored raised") as typed:
            await hooks.load("s")
        assert typed.value.__cause__ is error
        assert not typed.value.wrote_nothing
    typed_one = CorruptLogError(session_id="s", reason="bad")
    faults.fail("load_stored", error=typed_one)
    with pytest.raises(CorruptLogError):
        await hooks.load("s")
    faults.fail("load_stored", error=asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await hooks.load("s")


async def test_every_hook_is_passed_on_and_typed() -> None:
    """Each hook reaches the backend with its arguments, and fails typed (D2)."""
    faults = FaultyBackend(MemoryBackend())
    hooks = Hooks(faults)
    meta = header("s")
    owner = ClaimOwner(pid=1, host="h", since=1)
    claim = await hooks.claim("s", owner, meta=meta, takeover=False)
    await hooks.materialize_header(meta, claim=claim)
    batch = EncodedBatch.of(LogScript().turn().events)
    revision = await hooks.append(meta, batch, is_materialized=True, claim=claim, summary=None)
    assert await hooks.revision("s") == revision
    assert await hooks.exists("s")
    await hooks.repair(meta, None, (), claim=claim)
    part = await hooks.load_from("s", 1, 2)
    assert part is not None
    assert len(part.events) == 2
    assert [entry.session_id async for entry in hooks.list(None, None)] == ["s"]
    assert hooks.locate(meta) is None
    await hooks.renew([claim])
    await hooks.delete("s", claim=claim)
    await hooks.release(claim)
    hooks.forget()
    await hooks.aclose()
    assert all(
        faults.counts[hook] == 1
        for hook in ("claim", "materialize_header", "append_batch", "commit_repair", "delete_stored")
    )
    assert all(
        faults.counts[hook] == 1 for hook in ("renew", "release", "forget", "aclose", "locate", "list")
    )


async def test_an_append_may_begin_at_once() -> None:
    """A hook that returns a future is called in this turn; one that raises instead has failed (D2)."""
    meta, batch = header("s"), EncodedBatch.of(LogScript().turn().events)
    backend = MemoryBackend()
    answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    called: list[object] = []

    def begin(*args: object, **options: object) -> asyncio.Future[str | None]:
        called.append(options["is_materialized"])
        return answer

    backend.append_batch = begin  # type: ignore[method-assign,assignment]  # a hook that is no coroutine
    writing = Hooks(backend).begin_append(meta, batch, claim=None, summary=None)
    assert called == [True]
    answer.set_result("r")
    assert await writing == "r"

    def refuse(*args: object, **options: object) -> asyncio.Future[str | None]:
        raise ValueError("odd")

    backend.append_batch = refuse  # type: ignore[method-assign,assignment]  # as above
    with pytest.raises(ValueError, match="odd") as raised:
        await Hooks(backend).begin_append(meta, batch, claim=None, summary=None)
    typed_one = typed("memory", "append_batch", raised.value)
    assert isinstance(typed_one, BackendError)
    assert typed_one.__cause__ is raised.value
    assert typed("memory", "append_batch", typed_one) is typed_one


async def test_absent_hooks_have_defaults() -> None:
    """A backend with only the required hooks can be asked everything else without harm (W1)."""

    class Bare:
        name = "bare"

        def __init__(self) -> None:
            inner = MemoryBackend()
            self.load_stored = inner.load_stored
            self.append_batch = inner.append_batch
            self.commit_repair = inner.commit_repair
            self.list = inner.list
            self.inner = inner

    bare = Bare()
    hooks = Hooks(bare)
    flags = (
        hooks.has_revisions,
        hooks.has_suffix_reads,
        hooks.has_watch,
        hooks.has_header_only,
        hooks.has_delete,
        hooks.has_claims,
        hooks.has_renewal,
    )
    assert not any(flags)
    meta = header("s")
    assert not await hooks.exists("s")
    batch = EncodedBatch.of(LogScript().turn().events)
    await hooks.append(meta, batch, is_materialized=False, claim=None, summary=None)
    assert await hooks.exists("s")
    bare.inner.medium.sessions["s"].header = b"spoiled\n"
    assert await hooks.exists("s")
    assert hooks.locate(meta) is None
    await hooks.release(object())
    await hooks.aclose()
    hooks.forget()


async def test_an_iterator_that_is_left_is_closed() -> None:
    """Leaving a listing or a watch early closes the backend's generator (R3)."""
    closed: list[str] = []

    class Listing(MemoryBackend):
        async def list(
            self, after: str | None = None, limit: int | None = None
        ) -> AsyncIterator[StoredEntry]:
            try:
                while True:
                    yield StoredEntry("s", None, "ok", None, 0, None, None)
            finally:
                closed.append("list")

        async def watch(self, session_id: str) -> AsyncIterator[None]:
            try:
                while True:
                    yield
            finally:
                closed.append("watch")

    hooks = Hooks(Listing())
    entries = hooks.list(None, None)
    await anext(entries)
    await entries.aclose()
    changes = hooks.watch("s")
    await anext(changes)
    await changes.aclose()
    assert closed == ["list", "watch"]


async def test_an_iterator_that_cannot_be_closed_is_just_left() -> None:
    """A backend may return any iterator (R3)."""

    class Once:
        def __aiter__(self) -> Once:
            return self

        async def __anext__(self) -> StoredEntry:
            raise StopAsyncIteration

    class Listing(MemoryBackend):
        def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
            return Once()

    assert [entry async for entry in Hooks(Listing()).list(None, None)] == []


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (UnexpectedSeqError(session_id="s", expected=1, actual=2), True),
        (SessionBusyError(session_id="s"), True),
        (SessionExistsError(session_id="s", where="storage"), True),
        (SessionCollisionError(session_id="s", reason="other"), True),
        (WriterFencedError(session_id="s"), True),
        (UsageError("no"), True),
        (BackendError(backend="b", reason="full", wrote_nothing=True), True),
        (BackendUnavailableError(backend="b", reason="away"), False),
        (CorruptLogError(session_id="s", reason="bad"), False),
        (SessionNotFoundError(session_id="s"), False),
        (OSError("disk"), False),
    ],
)
def test_only_typed_refusals_have_a_known_outcome(error: Exception, known: bool) -> None:
    """A write failed for certain only if the error says so; everything else is in doubt (B3)."""
    assert wrote_nothing(error) is known
