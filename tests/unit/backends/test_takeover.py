"""A writer taken over at any moment: nothing acknowledged is lost, nothing late reaches the log (W1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import META, FailingFiles, append, batch, event, listed, loaded, store
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.layout import LOCK_NAME, place_of
from turnlog.backends.jsonl.lock import JsonlClaim
from turnlog.backends.jsonl.takeover import lock_identity
from turnlog.errors import BackendError, SessionBusyError, TurnlogError, WriterFencedError
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.claims import this_process

STOPS = ["path_status", "write_at", "written", "sync_data", "synced"]


class Stop:
    """A point at which a writer's thread waits, like a stopped process, until it is let go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.go_on.wait(20)

    async def wait(self) -> None:
        """Wait until the writer has stopped."""
        assert await asyncio.to_thread(self.reached.wait, 20)


async def _take_over(backend: JsonlBackend) -> JsonlClaim:
    return await backend.claim(META.id, this_process(), takeover=True)


@pytest.mark.parametrize("call", STOPS)
async def test_an_append_stopped_anywhere_is_fenced(
    make: OpenBackend, files: FailingFiles, call: str
) -> None:
    """W1: A stops at one system call of an append; B takes over and appends; A is fenced, the log is B's."""
    a, b = make(files), make()
    old = await store(a, batch(0, 3), keep=True)
    stop = Stop()
    files.stop(call, stop)
    late = asyncio.create_task(append(a, batch(3, 2), old))
    await stop.wait()

    new = await _take_over(b)
    held = (await loaded(b)).events
    first = held.next_seq
    await append(b, EncodedBatch.of([event(first, title="from B")]), new)
    stop.go_on.set()

    with pytest.raises(WriterFencedError):
        await late
    log = (await loaded(b)).events
    assert log.next_seq == first + 1
    assert log[first].data == {"title": "from B"}
    assert list(log)[:3] == list(batch(0, 3).events())


@pytest.mark.parametrize("call", ["create", "write_at", "link", "linked"])
async def test_a_publication_stopped_anywhere_is_fenced(
    make: OpenBackend, files: FailingFiles, call: str
) -> None:
    """W1, B1: A stops while it publishes a new log; after B's takeover it cannot appear in B's place."""
    a, b = make(files), make()
    old = await a.claim(META.id, this_process(), meta=META)
    stop = Stop()
    files.stop(call, stop)
    late = asyncio.create_task(append(a, batch(0, 3), old, new=True))
    await stop.wait()

    new = await b.claim(META.id, this_process(), meta=META, takeover=True)
    stored = await b.load_stored(META.id)
    if stored is None:
        await append(b, EncodedBatch.of([event(0, title="from B")]), new, new=True)
    stop.go_on.set()

    with pytest.raises(WriterFencedError):
        await late
    log = (await loaded(b)).events
    expected = batch(0, 3).events() if stored is not None else [event(0, title="from B")]
    assert list(log) == list(expected)
    assert not list(Path(place_of(str(b.root.path), META, "zstd").folder).glob("*.tmp"))


@pytest.mark.parametrize("call", ["truncate", "truncated", "create", "link"])
async def test_a_repair_stopped_anywhere_is_fenced(make: OpenBackend, files: FailingFiles, call: str) -> None:
    """W1, L1: A stops inside a repair; B takes over, repairs itself and appends; A changes nothing more."""
    a, b = make(files), make()
    await store(a, batch(0, 3))
    log_path = Path((await listed(b))[0].path or "")
    log_path.write_bytes(log_path.read_bytes() + b"\x28\xb5")
    old = await a.claim(META.id, this_process())
    tear = (await loaded(a)).torn_marker
    stop = Stop()
    files.stop(call, stop)
    late = asyncio.create_task(a.commit_repair(META, tear, [event(3)], claim=old))
    await stop.wait()

    new = await _take_over(b)
    found = await loaded(b)
    if found.torn_marker is not None:
        await b.commit_repair(META, found.torn_marker, [], claim=new)
    await append(b, EncodedBatch.of([event(3, title="from B")]), new)
    stop.go_on.set()

    with pytest.raises(WriterFencedError):
        await late
    assert list((await loaded(b)).events) == [*batch(0, 3).events(), event(3, title="from B")]
    assert [path.read_bytes() for path in log_path.parent.glob("torn-*.bin")] == [b"\x28\xb5"]


async def test_what_was_acknowledged_during_the_copy_is_not_lost(
    make: OpenBackend, files: FailingFiles
) -> None:
    """W1: A acknowledges up to the moment B swaps the lock; all of it is in B's log."""
    a, b = make(), make(files)
    old = await store(a, batch(0, 3), keep=True)
    done = threading.Event()
    loop = asyncio.get_running_loop()

    def append_now() -> None:
        asyncio.run_coroutine_threadsafe(append(a, batch(3, 2), old), loop).result(20)
        done.set()

    files.stop("rename", append_now)  # the very last moment before the lock is swapped
    await _take_over(b)

    assert done.is_set()
    assert (await loaded(b)).events.next_seq == 5


async def test_a_rollback_does_not_touch_the_new_log(make: OpenBackend, files: FailingFiles) -> None:
    """W1, D2: A's sync fails while B takes over; A's rollback finds B's file and leaves it alone."""
    a, b = make(files), make()
    old = await store(a, batch(0, 3), keep=True)
    stop = Stop()
    files.stop("sync_data", stop)
    files.fail("sync_data")
    late = asyncio.create_task(append(a, batch(3, 2), old))
    await stop.wait()
    new = await _take_over(b)
    first = (await loaded(b)).events.next_seq
    await append(b, EncodedBatch.of([event(first, title="from B")]), new)
    stop.go_on.set()

    with pytest.raises(WriterFencedError):
        await late
    assert (await loaded(b)).events.next_seq == first + 1


async def test_a_fenced_writer_stays_fenced(make: OpenBackend) -> None:
    """W1: after a takeover every write hook of the old writer is refused, also without kept handles."""
    a, b = make(), make()
    old = await store(a, batch(0, 1), keep=True)
    await _take_over(b)
    calls: list[Callable[[], object]] = [
        lambda: append(a, batch(1, 1), old),
        lambda: append(a, batch(1, 1), old),
        lambda: a.commit_repair(META, None, [event(1)], claim=old),
        lambda: a.delete_stored(META.id, claim=old),
    ]
    for call in calls:
        with pytest.raises(WriterFencedError):
            await call()  # type: ignore[misc]  # each is a coroutine function without arguments
    await a.release(old)  # does not give back what is B's
    with pytest.raises(SessionBusyError):
        await make().claim(META.id, this_process())


async def test_two_takeovers_at_once_have_one_winner(make: OpenBackend, files: FailingFiles) -> None:
    """W1: B and C find A's lock busy; C is faster; B is told that C has the session."""
    a, b, c = make(), make(files), make()
    await store(a, batch(0, 1), keep=True)
    loop = asyncio.get_running_loop()

    def c_is_faster() -> None:
        asyncio.run_coroutine_threadsafe(_take_over(c), loop).result(20)

    # B has seen that the lock is busy and reads whose it is.
    files.stop("read_at", c_is_faster)
    with pytest.raises(SessionBusyError):
        await _take_over(b)
    assert len(c._held) == 1


async def test_a_takeover_in_progress_excludes_another(make: OpenBackend, files: FailingFiles) -> None:
    """W1: while B swaps the lock under the folder's lock, C is told that the session is busy."""
    a, b, c = make(), make(files), make()
    await store(a, batch(0, 1), keep=True)
    stop = Stop()
    files.stop("create", stop)
    slow = asyncio.create_task(_take_over(b))
    await stop.wait()
    with pytest.raises(SessionBusyError):
        await _take_over(c)
    stop.go_on.set()
    await slow


async def test_a_takeover_of_a_takeover(make: OpenBackend, files: FailingFiles) -> None:
    """W1: C takes over while B copies the log; B's copy cannot replace what C has put there."""
    a, b, c = make(), make(files), make()
    await store(a, batch(0, 2), keep=True)
    stop = Stop()
    files.stop("sync", stop)  # the first sync of a takeover is that of the copy
    slow = asyncio.create_task(_take_over(b))
    await stop.wait()
    new = await _take_over(c)
    await append(c, batch(2, 1), new)
    stop.go_on.set()
    with pytest.raises(SessionBusyError):
        await slow
    assert (await loaded(c)).events.next_seq == 3


async def test_a_takeover_that_sees_the_next_one_before_copying(
    make: OpenBackend, files: FailingFiles
) -> None:
    """W1: B has swapped the lock and not begun to copy when C swaps it again; B gives up."""
    a, b, c = make(), make(files), make()
    await store(a, batch(0, 2), keep=True)
    loop = asyncio.get_running_loop()

    def c_is_faster() -> None:
        asyncio.run_coroutine_threadsafe(_take_over(c), loop).result(20)

    files.stop("renamed", lambda: files.stop("create", c_is_faster))
    with pytest.raises(SessionBusyError):
        await _take_over(b)
    assert (await loaded(c)).events.next_seq == 2


@pytest.mark.parametrize("call", ["create", "read_at", "sync", "rename"])
async def test_a_takeover_that_dies_is_finished_by_the_next_owner(
    make: OpenBackend, files: FailingFiles, call: str
) -> None:
    """W1: B fails after the swap of the lock; A, stopped before its write, still cannot reach C's log."""
    slow_files = FailingFiles()
    a, b, c = make(slow_files), make(files), make()
    old = await store(a, batch(0, 2), keep=True)
    stop = Stop()
    slow_files.stop("write_at", stop)
    late = asyncio.create_task(append(a, batch(2, 1), old))
    await stop.wait()

    files.stop("renamed", lambda: files.fail(call))
    with pytest.raises(BackendError):
        await _take_over(b)
    new = await c.claim(META.id, this_process())  # B is gone: the lock is free, but the swap is pending
    await append(c, EncodedBatch.of([event(2, title="from C")]), new)
    stop.go_on.set()

    with pytest.raises(WriterFencedError):
        await late
    assert list((await loaded(c)).events)[2:] == [event(2, title="from C")]


async def test_a_failing_swap_of_the_lock_changes_nothing(make: OpenBackend, files: FailingFiles) -> None:
    """W1: B cannot write its lock; A goes on as if nothing had been."""
    a, b = make(), make(files)
    old = await store(a, batch(0, 2), keep=True)
    files.fail("rename")
    with pytest.raises(BackendError):
        await _take_over(b)
    await append(a, batch(2, 1), old)
    folder = Path(place_of(str(a.root.path), META, "zstd").folder)
    assert not list(folder.glob("*.tmp"))


async def test_a_program_that_does_not_look_again_keeps_its_last_rows(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: another program appends to the old file between copy and swap; its whole rows are fetched."""
    a, b = make(), make(files)
    await store(a, batch(0, 2), keep=True)
    log = next(root.glob("*/*/session.jsonl*"))
    late, torn = batch(2, 2), batch(4, 1)
    data = late.frame() + torn.frame()[:-3] if log.name.endswith("zstd") else late.text() + torn.text()[:-3]

    def write_late() -> None:
        with log.open("ab") as file:
            file.write(data)

    files.stop("sync", write_late)  # the copy is complete and is being synced
    await _take_over(b)
    found = await loaded(b)
    assert found.events.next_seq == 4
    assert found.torn_marker is None


async def test_late_bytes_that_are_no_rows_are_left_behind(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: what the old file got after the copy is only taken as far as it is whole."""
    a, b = make(), make(files)
    await store(a, batch(0, 2), keep=True)
    log = next(root.glob("*/*/session.jsonl*"))

    def write_late() -> None:
        with log.open("ab") as file:
            file.write(b"\xff" * 40)

    files.stop("sync", write_late)
    await _take_over(b)
    assert (await loaded(b)).torn_marker is None


async def test_a_log_that_changes_during_the_copy_is_copied_again(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: the copy is only taken when two looks at the old file agree."""
    a, b = make(), make(files)
    await store(a, batch(0, 2), keep=True)
    log = next(root.glob("*/*/session.jsonl*"))
    data = batch(2, 1).frame() if log.name.endswith("zstd") else batch(2, 1).text()

    def write_late() -> None:
        with log.open("ab") as file:
            file.write(data)

    files.stop("renamed", lambda: files.stop("truncate", write_late))
    await _take_over(b)
    assert (await loaded(b)).events.next_seq == 3


async def test_a_log_that_never_rests_is_copied_a_bounded_number_of_times(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: a program that writes all the time cannot keep a takeover waiting."""
    a, b = make(), make(files)
    await store(a, batch(0, 2), keep=True)
    log = next(root.glob("*/*/session.jsonl*"))
    seq = 2

    def write_late() -> None:
        nonlocal seq
        part = batch(seq, 1)
        with log.open("ab") as file:
            file.write(part.frame() if log.name.endswith("zstd") else part.text())
        seq += 1
        files.stop("truncate", write_late)

    files.stop("renamed", lambda: files.stop("truncate", write_late))
    await _take_over(b)
    assert 16 <= seq - 2 <= 17
    assert (await loaded(b)).events.next_seq >= 17


async def test_takeover_of_a_free_session_is_an_ordinary_claim(make: OpenBackend, root: Path) -> None:
    """W1: nothing is swapped when the lock is free."""
    a, b = make(), make()
    await store(a, batch(0, 1))
    log = next(root.glob("*/*/session.jsonl*"))
    inode = log.stat().st_ino
    await _take_over(b)
    assert log.stat().st_ino == inode


async def test_errors_of_a_takeover_are_typed(make: OpenBackend, files: FailingFiles) -> None:
    """W1: a failing medium inside a takeover is a BackendError with the system's words."""
    a, b = make(), make(files)
    await store(a, batch(0, 1), keep=True)
    files.stop("renamed", lambda: files.fail("sync"))
    with pytest.raises(TurnlogError, match="Input/output error"):
        await _take_over(b)


def test_a_folder_without_a_lock_has_none(tmp_path: Path) -> None:
    """Whoever looks which file the lock is learns that there is none."""
    files = FailingFiles()
    with files.folder(str(tmp_path)) as folder:
        assert lock_identity(files, folder) is None
        (tmp_path / LOCK_NAME).touch()
        found = lock_identity(files, folder)
        assert found is not None
        assert found == lock_identity(files, folder)
