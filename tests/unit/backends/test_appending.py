"""Appending to stored logs: what is checked, what a failing medium leaves, what a repeated batch means."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import (
    META,
    OTHER,
    FailingFiles,
    append,
    batch,
    deltas,
    event,
    events,
    loaded,
    store,
)
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import CREATE_NEW, FileLayer
from turnlog.backends.jsonl.handles import AppendHandle, HandlePool
from turnlog.backends.jsonl.layout import Place
from turnlog.errors import (
    BackendError,
    CorruptLogError,
    SessionBusyError,
    UnexpectedSeqError,
    WriterFencedError,
)
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader, header_line
from turnlog.persistence.claims import this_process


def _log(root: Path) -> Path:
    return next(root.glob("*/*/session.jsonl*"))


def _stored(log: Path, part: EncodedBatch) -> bytes:
    return part.frame() if log.name.endswith("zstd") else part.text()


async def test_a_batch_is_one_frame_and_nothing_else_changes(backend: JsonlBackend, root: Path) -> None:
    """Z13, JL29: each batch adds exactly its own bytes behind the earlier ones."""
    claim = await store(backend, batch(0, 2), keep=True)
    log = _log(root)
    before = log.read_bytes()
    part = EncodedBatch.of(deltas(2, 9))
    await append(backend, part, claim)
    assert log.read_bytes() == before + _stored(log, part)


async def test_appends_open_the_log_once(make: OpenBackend, files: FailingFiles) -> None:
    """The handle is kept: later appends open nothing, write once and sync once."""
    backend = make(files)
    claim = await store(backend, batch(0, 1), keep=True)
    files.calls.clear()
    for seq in range(1, 6):
        await append(backend, batch(seq, 1), claim)
    counted = {
        call: files.calls.count(call) for call in ("open", "open_folder", "write_at", "sync_data", "sync")
    }
    assert counted == {"open": 0, "open_folder": 0, "write_at": 5, "sync_data": 5, "sync": 0}


async def test_handles_are_bounded(make: OpenBackend) -> None:
    """More live sessions than kept handles: the oldest are closed and opened again when needed."""
    backend = make()
    backend.handles._limit = 3
    metas = [SessionHeader(id=f"h-{n}", created_at=1, cwd="/w") for n in range(6)]
    claims = [await store(backend, batch(0, 1), meta=meta, keep=True) for meta in metas]
    assert len(backend.handles) == 3
    for meta, claim in zip(metas, claims, strict=True):
        await append(backend, batch(1, 1), claim, meta=meta)
    assert len(backend.handles) == 3
    assert [(await loaded(backend, meta.id)).events.next_seq for meta in metas] == [2] * 6


async def test_a_vanished_log_is_not_created_again(backend: JsonlBackend, root: Path) -> None:
    """An append to a log that was removed is an error that says that nothing was written."""
    claim = await store(backend, batch(0, 1), keep=True)
    log = _log(root)
    log.unlink()
    for _ in range(2):  # with the kept handle, and without
        with pytest.raises(BackendError, match="vanished") as caught:
            await append(backend, batch(1, 1), claim)
        assert caught.value.wrote_nothing
    assert not log.exists()


async def test_a_log_that_vanishes_while_it_is_opened(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """The log is removed between being found and being opened: the same error."""
    backend = make(files)
    claim = await store(backend, batch(0, 1), keep=True)
    backend.handles.drop("s-1")
    files.stop("open", _log(root).unlink)
    with pytest.raises(BackendError, match="vanished"):
        await append(backend, batch(1, 1), claim)


async def test_a_log_that_vanishes_during_the_write(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """The log is removed between write and acknowledgement: it is not acknowledged."""
    backend = make(files)
    claim = await store(backend, batch(0, 1), keep=True)
    files.stop("synced", _log(root).unlink)
    with pytest.raises(BackendError, match="vanished"):
        await append(backend, batch(1, 1), claim)


async def test_a_foreign_append_is_noticed(backend: JsonlBackend, root: Path) -> None:
    """W1, B3: another program has appended; the batch is refused, and accepted where it continues that."""
    claim = await store(backend, batch(0, 2), keep=True)
    log = _log(root)
    with log.open("ab") as file:
        file.write(_stored(log, batch(2, 3)))
    with pytest.raises(UnexpectedSeqError) as caught:
        await append(backend, EncodedBatch.of([event(2, title="mine")]), claim)
    assert (caught.value.expected, caught.value.actual) == (5, 2)
    await append(backend, batch(5, 1), claim)
    assert (await loaded(backend)).events.next_seq == 6


async def test_a_log_swapped_by_hand_is_opened_afresh(backend: JsonlBackend, root: Path) -> None:
    """W1: another file under the same name, for example from a backup, is looked at before it is written."""
    claim = await store(backend, batch(0, 2), keep=True)
    log = _log(root)
    copy = log.with_name("copy")
    copy.write_bytes(log.read_bytes())
    copy.replace(log)
    await append(backend, batch(2, 1), claim)
    assert (await loaded(backend)).events.next_seq == 3


async def test_a_log_swapped_during_the_write_is_not_acknowledged(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: the inode is compared again before the acknowledgement."""
    backend = make(files)
    claim = await store(backend, batch(0, 2), keep=True)
    log = _log(root)

    def swap() -> None:
        copy = log.with_name("copy")
        copy.write_bytes(log.read_bytes())
        copy.replace(log)

    files.stop("synced", swap)
    with pytest.raises(WriterFencedError):
        await append(backend, batch(2, 1), claim)


async def test_repeating_a_stored_batch_is_success(make: OpenBackend, files: FailingFiles) -> None:
    """B3, PE: a batch whose reply was lost is accepted again, however it is framed, and synced again."""
    backend = make(files)
    claim = await store(backend, batch(0, 2), batch(2, 2), keep=True)
    files.calls.clear()
    first = await append(backend, batch(2, 2), claim)
    assert files.calls.count("sync") == 2  # file and folder
    assert files.calls.count("write_at") == 0
    assert await append(backend, batch(0, 4), claim) == first
    assert await append(backend, batch(3, 1), claim) == first
    await append(backend, batch(4, 1), claim)


@pytest.mark.parametrize(
    "part", [events(1, 2), [event(2), event(3, title="other")], events(5, 1), events(3, 2)]
)
async def test_any_other_batch_is_refused(backend: JsonlBackend, root: Path, part: list[object]) -> None:
    """B3, JL34, JL80: a batch that is not the stored tail writes nothing."""
    claim = await store(backend, batch(0, 4), keep=True)
    before = _log(root).read_bytes()
    with pytest.raises(UnexpectedSeqError):
        await append(backend, EncodedBatch.of(part), claim)  # type: ignore[arg-type]  # events of the table
    assert _log(root).read_bytes() == before


@pytest.mark.parametrize(("call", "number"), [("write_at", errno.ENOSPC), ("sync_data", errno.EIO)])
async def test_a_failed_append_leaves_nothing(
    make: OpenBackend, files: FailingFiles, root: Path, call: str, number: int
) -> None:
    """JL30, Z22, B2: a failed write or sync restores the size; the retry leaves no gap."""
    backend = make(files)
    claim = await store(backend, batch(0, 2), keep=True)
    before = _log(root).read_bytes()
    files.fail(call, number=number)
    with pytest.raises(BackendError, match=os.strerror(number)) as caught:
        await append(backend, batch(2, 2), claim)
    assert caught.value.wrote_nothing
    assert isinstance(caught.value.__cause__, OSError)
    assert _log(root).read_bytes() == before
    await append(backend, batch(2, 2), claim)
    assert (await loaded(backend)).events.next_seq == 4


async def test_a_failed_rollback_leaves_doubt_that_is_settled_later(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """JL31, D2, B3: both errors are reported; the next append cuts first, then writes the batch again."""
    backend = make(files)
    claim = await store(backend, batch(0, 2), keep=True)
    before = _log(root).read_bytes()
    files.fail("sync_data")
    files.fail("truncate", times=2)
    with pytest.raises(BackendError, match="could not be rolled back") as caught:
        await append(backend, batch(2, 2), claim)
    assert not caught.value.wrote_nothing
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert len(caught.value.__cause__.exceptions) == 2
    backend.handles._limit = 0  # a handle in doubt is kept whatever the limit says
    with pytest.raises(BackendError, match="Input/output error"):
        await append(backend, batch(2, 2), claim)  # the medium still refuses to cut
    files.calls.clear()
    await append(backend, batch(2, 2), claim)
    wanted = [call for call in files.calls if call in ("truncate", "sync", "write_at", "sync_data")]
    assert wanted == ["truncate", "sync", "write_at", "sync_data"]
    assert _log(root).read_bytes() == before + _stored(_log(root), batch(2, 2))


async def test_doubt_does_not_cut_what_others_wrote(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """D2: behind the doubtful bytes another program has appended; nothing is cut away."""
    backend = make(files)
    claim = await store(backend, batch(0, 2), keep=True)
    log = _log(root)
    files.fail("sync_data")
    files.fail("truncate")
    with pytest.raises(BackendError):
        await append(backend, batch(2, 2), claim)
    with log.open("ab") as file:
        file.write(_stored(log, batch(4, 2)))
    with pytest.raises(WriterFencedError):
        await append(backend, batch(2, 2), claim)
    assert (await loaded(backend)).events.next_seq == 6


class _ShortWrites(FileLayer):
    """Takes at most seven bytes at a time."""

    def write_part(self, fd: int, data: memoryview, offset: int) -> int:
        return super().write_part(fd, data[:7], offset)


async def test_short_writes_are_continued(make: OpenBackend) -> None:
    """A system that takes a write in parts gets all of them."""
    backend = make(_ShortWrites())
    await store(backend, batch(0, 3), batch(3, 3))
    assert list((await loaded(backend)).events) == events(0, 6)


async def test_a_header_of_another_session_is_refused(backend: JsonlBackend, root: Path) -> None:
    """JL33: a log whose header names another session is not touched."""
    await store(backend, batch(0, 1))
    await store(backend, batch(0, 1), meta=OTHER)
    mine, other = sorted(root.glob("*/*/session.jsonl*"))
    mine.write_bytes(other.read_bytes())
    before = other.read_bytes()
    with pytest.raises(CorruptLogError, match="another session"):
        await append(backend, batch(1, 1), None)
    assert (mine.read_bytes(), other.read_bytes()) == (before, before)


async def test_the_end_of_the_log_is_looked_at_before_the_first_append(
    backend: JsonlBackend, root: Path
) -> None:
    """R2: a log with a torn tail is not appended to; a damaged one is named as damaged."""
    await store(backend, batch(0, 2))
    log = _log(root)
    whole = log.read_bytes()
    log.write_bytes(whole + _stored(log, batch(2, 2))[:-2])
    with pytest.raises(BackendError, match="torn tail") as caught:
        await append(backend, batch(2, 1), None)
    assert caught.value.wrote_nothing
    bad = bytearray(_stored(log, batch(2, 2)))
    bad[len(bad) // 2] ^= 1
    log.write_bytes(whole + (bytes(bad) if log.name.endswith("zstd") else b"x" + _stored(log, batch(2, 1))))
    with pytest.raises(CorruptLogError):
        await append(backend, batch(2, 1), None)


@pytest.mark.parametrize("compression", ["zstd"], indirect=True)
async def test_a_whole_log_whose_last_frame_is_empty(backend: JsonlBackend, root: Path) -> None:
    """An empty frame at the end is fine: the next append continues after the last event."""
    await store(backend, batch(0, 2))
    log = _log(root)
    log.write_bytes(log.read_bytes() + frames.compress(b""))
    await append(backend, batch(2, 1), None)
    assert (await loaded(backend)).events.next_seq == 3
    log.write_bytes(frames.compress(header_line(META)) + frames.compress(b""))
    await append(backend, batch(0, 1), None)
    assert (await loaded(backend)).events.next_seq == 1


async def test_only_files_are_logs(backend: JsonlBackend, root: Path) -> None:
    """S1: a pipe in the place of a log neither blocks nor is written to."""
    await store(backend, batch(0, 1))
    log = _log(root)
    log.unlink()
    os.mkfifo(log)
    with pytest.raises(BackendError, match="not a file"):
        await append(backend, batch(1, 1), None)
    with pytest.raises(BackendError, match="not a file"):
        await backend.load_stored(META.id)


async def test_without_a_claim_one_is_taken_for_the_write(make: OpenBackend) -> None:
    """W1: a write without a claim excludes others for its own length and refuses when the session is busy."""
    a, b = make(), make()
    await append(a, batch(0, 1), None, new=True)
    await append(b, batch(1, 1), None)
    held = await a.claim(META.id, this_process())
    with pytest.raises(SessionBusyError) as caught:
        await append(b, batch(2, 1), None)
    assert caught.value.owner is not None
    assert caught.value.owner.pid == os.getpid()
    await a.release(held)


async def test_one_id_in_two_working_directories(backend: JsonlBackend) -> None:
    """JL79: a handle of the same id under another working directory is not used."""
    elsewhere = SessionHeader(id=META.id, created_at=5, cwd="/other")
    claim = await store(backend, batch(0, 1), keep=True)
    with pytest.raises(BackendError, match="vanished"):
        await append(backend, batch(1, 1), claim, meta=elsewhere)
    assert (await loaded(backend)).events.next_seq == 1


async def test_a_failing_open_closes_the_log(make: OpenBackend, files: FailingFiles) -> None:
    """A failure while a log is opened for writing is typed and leaves no descriptor."""
    backend = make(files)
    await store(backend, batch(0, 1))
    for call in ("status", "read_at"):
        before = len(os.listdir("/proc/self/fd"))
        files.stop("path_status", lambda call=call: files.fail(call, times=40))  # type: ignore[misc]  # binds now
        with pytest.raises(BackendError):
            await append(backend, batch(1, 1), None)
        files.rules.clear()
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_pool_closes_everything(tmp_path: Path) -> None:
    """A pool drops one handle by its session and closes the rest; dropping an absent one does nothing."""
    files = FileLayer()
    pool = HandlePool(files)
    pool.drop("nothing")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"")
        fd = files.open(str(tmp_path / name), os.O_RDONLY)
        pool.give_back(AppendHandle(Place(str(tmp_path), "p", name, "none"), fd, (1, 1), 0, 0, 0))
    pool.drop("a")
    assert len(pool) == 1
    pool.close()
    assert len(pool) == 0
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_cannot_be_made_private_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1: a new file whose mode cannot be set is not used."""
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fchmod", _refuse)
    mask = os.umask(0o777)
    try:
        with pytest.raises(PermissionError):
            FileLayer().open(str(tmp_path / "new"), CREATE_NEW)
    finally:
        os.umask(mask)
    assert len(os.listdir("/proc/self/fd")) == before


def _refuse(fd: int, mode: int) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
