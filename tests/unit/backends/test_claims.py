"""Claims on one host: who holds one, who loses it when, what is left behind (W1)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import META, OTHER, FailingFiles, append, batch, listed, loaded, store
from turnlog.backends.jsonl import lock
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.layout import id_of_segment
from turnlog.backends.jsonl.lock import decode_facts
from turnlog.backends.jsonl.root import UnsafeLockWarning
from turnlog.errors import (
    BackendError,
    ClaimOwner,
    InvalidSessionIdError,
    SessionBusyError,
    SessionNotFoundError,
    UsageError,
    WriterFencedError,
)
from turnlog.persistence.claims import completed, is_alive, this_process

HOLDER = """
import asyncio, sys
from tests.unit.backends.logs import META, batch, store
from turnlog.backends.jsonl.backend import JsonlBackend

async def main():
    backend = JsonlBackend(sys.argv[1])
    await store(backend, batch(0, 1), keep=True)
    print("held", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def _folder(root: Path) -> Path:
    return root / "--srv-app--" / "s-1"


@pytest.fixture
def holder(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Start another process that holds the claim of a stored session."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_a_living_process_keeps_its_claim(holder: subprocess.Popen[str], root: Path) -> None:
    """W1: another process holds the claim, running or stopped; the error names it."""
    backend = JsonlBackend(root)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        with pytest.raises(SessionBusyError) as caught:
            await backend.claim(META.id, this_process())
        assert caught.value.owner is not None
        assert caught.value.owner.pid == holder.pid
        (entry,) = await listed(backend)
        assert entry.status == "live"
        holder.send_signal(number)
    await backend.aclose()


async def test_a_dead_process_loses_its_claim_at_once(holder: subprocess.Popen[str], root: Path) -> None:
    """W1: after SIGKILL the claim is free, also before anybody has reaped the process."""
    backend = JsonlBackend(root)
    holder.kill()
    while not _is_zombie(holder.pid):
        await asyncio.sleep(0.01)
    (entry,) = await listed(backend)
    assert entry.status == "ok"
    await backend.release(await backend.claim(META.id, this_process()))
    await backend.aclose()


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _lock_of_a_dead_process(root: Path) -> int:
    """Lock the stored session as a process that has ended since, and return the descriptor."""
    mine = completed(this_process())
    fd = os.open(_folder(root) / "session.lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.truncate(fd, 0)
    lock.write_owner(FileLayer(), fd, replace(mine, start_time=(mine.start_time or 0) + 1))
    return fd


async def test_a_dying_process_is_waited_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W1: a killed process is dead a moment before its files are closed; its lock is free soon."""
    backend = JsonlBackend(root)
    await store(backend, batch(0, 1))
    fd = _lock_of_a_dead_process(root)
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            os.close(fd)

    monkeypatch.setattr("time.sleep", pause)
    await backend.release(await backend.claim(META.id, this_process()))
    assert len(pauses) == 3
    await backend.aclose()


async def test_a_lock_that_a_dead_process_left_to_a_child_stays_taken(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1: what still holds the lock after the time for dying is somebody, whoever the lock names."""
    monkeypatch.setattr(lock, "DYING_SECONDS", 0.01)
    backend = JsonlBackend(root)
    await store(backend, batch(0, 1))
    fd = _lock_of_a_dead_process(root)
    with pytest.raises(SessionBusyError):
        await backend.claim(META.id, this_process())
    os.close(fd)
    await backend.aclose()


async def test_a_forked_child_neither_holds_nor_releases(backend: JsonlBackend, make: OpenBackend) -> None:
    """W1: after a fork the child has no lock descriptor; its exit does not free the parent's claim."""
    claim = await store(backend, batch(0, 1), keep=True)
    assert claim.fd is not None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - runs in the child, which reports by its exit code
        backend.forget()
        os.write(writer, b"1" if claim.fd is None else b"0")
        os._exit(0)
    assert os.read(reader, 1) == b"1"
    await asyncio.to_thread(os.waitpid, child, 0)
    os.close(reader)
    os.close(writer)
    with pytest.raises(SessionBusyError):
        await make().claim(META.id, this_process())
    await append(backend, batch(1, 1), claim)


async def test_forgetting_closes_and_ends_a_backend(make: OpenBackend, root: Path) -> None:
    """W1: `forget` closes every descriptor, wipes nothing, and the backend is of no more use."""
    backend = make()
    claim = await store(backend, batch(0, 1), keep=True)
    facts = (_folder(root) / "session.lock").read_bytes()
    backend.forget()
    claim.forget()  # a second time does nothing
    assert (_folder(root) / "session.lock").read_bytes() == facts
    assert not claim.is_current(backend.files)
    claim.release(backend.files)
    with pytest.raises(UsageError, match="closed"):
        await backend.load_stored(META.id)


async def test_all_claims_of_a_process_are_void_in_its_child(backend: JsonlBackend) -> None:
    """W1: the hook that runs in a forked child closes every lock descriptor of the process."""
    claim = await store(backend, batch(0, 1), keep=True)
    lock._forget_in_child()
    assert claim.fd is None
    with pytest.raises(WriterFencedError):
        await append(backend, batch(1, 1), claim)


async def test_a_lock_file_that_goes_away_fences(backend: JsonlBackend, root: Path) -> None:
    """W1: without its lock file, or with another one in its place, a claim is void."""
    claim = await store(backend, batch(0, 1), keep=True)
    (_folder(root) / "session.lock").unlink()
    with pytest.raises(WriterFencedError):
        await append(backend, batch(1, 1), claim)
    (_folder(root) / "session.lock").write_bytes(b"")
    with pytest.raises(WriterFencedError):
        await append(backend, batch(1, 1), claim)
    with pytest.raises(WriterFencedError):
        await backend.materialize_header(OTHER, claim=claim)


async def test_a_lock_that_was_replaced_is_taken_again(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: the inode is compared with the path after locking; three tries, then the session is busy."""
    backend = make(files)
    await store(backend, batch(0, 1))
    lock = _folder(root) / "session.lock"

    def replace_it() -> None:
        lock.unlink()
        lock.write_bytes(b"")

    files.stop("status", replace_it)
    await backend.release(await backend.claim(META.id, this_process()))

    def always() -> None:
        replace_it()
        files.stop("status", always)

    files.stop("status", always)
    with pytest.raises(SessionBusyError):
        await backend.claim(META.id, this_process())


async def test_a_lock_file_removed_while_it_is_taken(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: the path is gone when it is compared: the lock is taken anew."""
    backend = make(files)
    await store(backend, batch(0, 1))
    files.stop("status", (_folder(root) / "session.lock").unlink)
    claim = await backend.claim(META.id, this_process())
    assert claim.is_current(backend.files)


async def test_a_claim_needs_a_stored_session_or_a_header(backend: JsonlBackend) -> None:
    """W1: a claim by id alone of a session that is not stored is refused."""
    with pytest.raises(SessionNotFoundError):
        await backend.claim("nothing", this_process())


async def test_a_folder_removed_again_and_again(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """W1: a session folder that goes away under the claim is made again, a bounded number of times."""
    backend = make(files)
    folder = _folder(root)
    files.stop("open", folder.rmdir)
    await backend.release(await backend.claim(META.id, this_process(), meta=META))

    def always() -> None:
        folder.rmdir()
        files.stop("open", always)

    files.stop("open", always)
    with pytest.raises(BackendError, match="removed again"):
        await backend.claim(META.id, this_process(), meta=META)


async def test_ids_that_differ_only_in_case(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """S1: where the file system does not tell case apart, such an id is refused."""
    backend = make(files)
    await store(backend, batch(0, 1))

    (_folder(root) / "SESSION.LOCK").hardlink_to(_folder(root) / "session.lock")
    await backend.release(await backend.claim(META.id, this_process()))  # the very id is fine
    (_folder(root)).rename(root / "--srv-app--" / "S-1")
    found = files.entries
    files.entries = lambda folder: [e._replace(name=e.name.lower()) for e in found(folder)]  # type: ignore[method-assign]  # as such a file system would name it
    with pytest.raises(InvalidSessionIdError, match="case"):
        await backend.claim("S-1", this_process(), meta=replace(META, id="S-1"))


async def test_a_release_that_cannot_wipe_its_facts(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """W1: a medium that refuses leaves stale facts; the lock is free all the same."""
    backend = make(files)
    claim = await store(backend, batch(0, 1), keep=True)
    files.fail("truncate")
    await backend.release(claim)
    assert (_folder(root) / "session.lock").read_bytes()
    await make().claim(META.id, this_process())


async def test_an_unused_folder_with_other_things_in_it_stays(backend: JsonlBackend, root: Path) -> None:
    """B1: a folder that holds somebody's files is not removed with an unused claim."""
    claim = await backend.claim(META.id, this_process(), meta=META)
    (_folder(root) / "notes").write_text("mine")
    await backend.release(claim)
    assert [path.name for path in _folder(root).iterdir()] == ["notes"]


async def test_an_unused_folder_that_cannot_be_removed_stays(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """B1: failing to clean up after an unused claim is no error."""
    backend = make(files)
    claim = await backend.claim(META.id, this_process(), meta=META)
    files.fail("remove")
    await backend.release(claim)
    assert (_folder(root) / "session.lock").exists()


async def test_deleting_removes_everything(backend: JsonlBackend, root: Path) -> None:
    """L1: log, quarantine, summary, temporaries and lock are erased; other people's files stay."""
    claim = await store(backend, batch(0, 1), keep=True)
    folder = _folder(root)
    for name in ("torn-100.bin", "torn-100-1.bin", "summary.json", "session.jsonl.0123456789ab.tmp"):
        (folder / name).write_bytes(b"x")
    await backend.delete_stored(META.id, claim=claim)
    assert not folder.exists()
    await backend.release(claim)
    await backend.delete_stored(META.id, claim=None)  # absent by now: nothing to do
    await store(backend, batch(0, 1))
    (folder / "notes").write_text("mine")
    await backend.delete_stored(META.id, claim=None)
    assert [path.name for path in folder.iterdir()] == ["notes"]
    assert await backend.load_stored(META.id) is None


async def test_the_log_goes_last_and_then_the_lock(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """A deletion that fails in the middle leaves a session that is there to be deleted again, and no trace
    of it is lost sight of: what lies beside the log is gone for good before the log is.
    """
    backend = make(files)
    claim = await store(backend, batch(0, 1), keep=True)
    (_folder(root) / "summary.json").write_bytes(b"x")
    files.fail("remove", skip=1)
    with pytest.raises(BackendError):
        await backend.delete_stored(META.id, claim=claim)
    left = sorted(path.name for path in _folder(root).iterdir())
    assert [name.partition(".")[2][:5] for name in left] == ["jsonl", "lock"]
    synced = files.calls[: len(files.calls) - files.calls[::-1].index("remove") - 1]
    assert "sync" in synced[len(synced) - synced[::-1].index("remove") :], "the folder was not synced between"
    await backend.delete_stored(META.id, claim=claim)
    assert not _folder(root).exists()


async def test_closing_gives_claims_back(make: OpenBackend) -> None:
    """W1: what is still held when a backend closes is given back; closing twice does nothing more."""
    backend = make()
    await store(backend, batch(0, 1), keep=True)
    await backend.aclose()
    other = make()
    await other.claim(META.id, this_process())
    with pytest.raises(UsageError):
        await backend.load_stored(META.id)


def test_owners_of_other_processes_are_kept_as_they_are() -> None:
    """W1: only the facts of this very process are filled in."""
    other = ClaimOwner(pid=os.getpid() + 1, host="h", since=1)
    assert completed(other) is other
    mine = completed(ClaimOwner(pid=os.getpid(), host="h", since=1))
    assert (mine.since, mine.start_time, mine.boot_id) == (
        1,
        this_process().start_time,
        this_process().boot_id,
    )
    assert completed(mine) is mine
    assert is_alive(this_process())


def test_texts_that_are_no_facts() -> None:
    """W1: what another program writes into the lock, or half a write, describes nobody."""
    for text in (
        b"",
        b"{",
        b"1",
        b"null",
        b'{"pid":1}',
        b'{"pid":null,"host":"h","since":1}',
        b"[" * 100_000,
    ):
        assert decode_facts(text) == (None, False)


async def test_an_unsafe_file_system_is_warned_about_once(
    backend: JsonlBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1: only the first claim on a file system with doubtful locks warns."""
    monkeypatch.setattr(backend.root, "lock_warning", lambda: "on a nfs file system")
    with pytest.warns(UnsafeLockWarning, match="nfs"):
        await store(backend, batch(0, 1))
    await store(backend, batch(0, 1), meta=OTHER)
    assert (await loaded(backend)).events.next_seq == 1


def test_segments_that_name_no_id() -> None:
    """S1: a folder name that no id encodes to has no id."""
    assert id_of_segment("a~zz") is None
    assert id_of_segment("..~002Fx") == "../x"
