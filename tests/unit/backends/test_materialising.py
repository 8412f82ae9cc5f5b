"""Storing a new session: header and first batch in one step, in an order that survives power loss (B1)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import META, FailingFiles, append, batch, event, listed, loaded, store
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.publication import remove_temporaries
from turnlog.errors import (
    BackendError,
    InvalidSessionIdError,
    SessionCollisionError,
    SessionExistsError,
    UnexpectedSeqError,
)
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader, header_line
from turnlog.persistence.claims import this_process

SESSION_9 = SessionHeader(id="s-9", created_at=1, cwd="/srv/app")


async def test_the_order_of_a_publication(make: OpenBackend, files: FailingFiles) -> None:
    """B1, D2: file and entry of its folder are durable before the name is given, which is synced then."""
    backend = make(files)
    claim = await backend.claim(META.id, this_process(), meta=META)
    files.calls.clear()
    await append(backend, batch(0, 2), claim, new=True)
    wanted = {"create", "write_at", "sync", "sync_data", "link", "remove"}
    calls = [call for call in files.calls if call in wanted]
    named = calls.index("link")
    assert sorted(calls[:named]) == ["create", "sync", "sync", "write_at"]  # the syncs run side by side
    assert calls[named:] == ["link", "sync", "remove"]


async def test_a_new_session_opens_each_folder_once(make: OpenBackend, files: FailingFiles) -> None:
    """A claim and a publication look for nothing in a folder that was made for them."""
    backend = make(files)
    await store(backend, batch(0, 1))
    files.calls.clear()
    claim = await backend.claim("s-9", this_process(), meta=SESSION_9)
    calls = ("open_folder", "make_folder", "open", "path_status", "entries", "read_at", "sync")
    assert [files.calls.count(call) for call in calls] == [3, 1, 1, 1, 0, 0, 0]
    files.calls.clear()
    await append(backend, batch(0, 1), claim, meta=SESSION_9, new=True)
    # The lock before the name; lock and log before the acknowledgement.
    assert [files.calls.count(call) for call in calls] == [2, 0, 0, 3, 0, 0, 3]
    await backend.release(claim)


async def test_folders_above_are_synced_once(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """D2: every new entry on the way down is synced; known ones are not synced again."""
    backend = make(files)
    backend.root.path = str(root)
    await store(backend, batch(0, 1))
    first = files.calls.count("sync")
    files.calls.clear()
    await store(backend, batch(0, 1), meta=SessionHeader(id="s-9", created_at=1, cwd="/srv/app"))
    assert (first, files.calls.count("sync")) == (5, 3)


async def test_missing_parents_of_the_root_are_made(tmp_path: Path) -> None:
    """A root below folders that do not exist is created with all of them, private."""
    root = tmp_path / "a" / "b" / "root"
    backend = JsonlBackend(root)
    await store(backend, batch(0, 1))
    for path in (root, root.parent, root.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    await backend.aclose()


async def test_a_root_removed_meanwhile_is_made_again(backend: JsonlBackend, root: Path) -> None:
    """A root that somebody removed is created and synced again."""
    await store(backend, batch(0, 1))
    root.rename(root.with_name("away"))
    await store(backend, batch(0, 1))
    assert len(await listed(backend)) == 1


async def test_a_parent_that_may_not_be_read(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """A root that exists in a folder that may be passed but not read is used; a new one there is not."""
    root.mkdir()
    backend = make(files)
    files.fail("open_folder", number=errno.EACCES)
    await store(backend, batch(0, 1))
    root.rename(root.with_name("away"))
    other = make(files)
    files.fail("open_folder", number=errno.EACCES)
    with pytest.raises(BackendError, match="Permission denied"):
        await other.claim(META.id, this_process(), meta=META)


@pytest.mark.parametrize("mask", [0, 0o777])
async def test_modes_do_not_depend_on_the_umask(backend: JsonlBackend, root: Path, mask: int) -> None:
    """S1: files are 0600 and folders 0700 under any umask."""
    before = os.umask(mask)
    try:
        await store(backend, batch(0, 1))
    finally:
        os.umask(before)
    paths = [root, *root.rglob("*")]
    assert len(paths) == 5
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


async def test_a_stored_session_is_not_replaced(backend: JsonlBackend) -> None:
    """B1: materialising finds another log and refuses; the log stays as it is."""
    await store(backend, batch(0, 2))
    with pytest.raises(SessionExistsError):
        await append(backend, EncodedBatch.of([event(0, title="other")]), None, new=True)
    with pytest.raises(SessionExistsError):
        await backend.materialize_header(META, claim=None)
    assert (await loaded(backend)).events.next_seq == 2


async def test_another_header_is_a_collision(backend: JsonlBackend) -> None:
    """B1: the same id and folder with another header is a collision, nothing is written."""
    await store(backend, batch(0, 2))
    other = SessionHeader(id=META.id, created_at=5, cwd=META.cwd)
    with pytest.raises(SessionCollisionError):
        await append(backend, batch(0, 2), None, meta=other, new=True)


async def test_a_header_alone_takes_its_first_batch(backend: JsonlBackend) -> None:
    """B1: a session stored by its header alone goes on with the first batch, materialised or not."""
    await backend.materialize_header(META, claim=None)
    await backend.materialize_header(META, claim=None)  # asked for twice: nothing more to do
    assert (await loaded(backend)).events.next_seq == 0
    with pytest.raises(UnexpectedSeqError):
        await append(backend, batch(1, 1), None, new=True)
    await append(backend, batch(0, 2), None, new=True)
    assert (await loaded(backend)).events.next_seq == 2


async def test_a_materialising_batch_may_be_repeated(backend: JsonlBackend) -> None:
    """B3: the reply to the materialising batch was lost; the same batch again is success."""
    await store(backend, batch(0, 2))
    await append(backend, batch(0, 2), None, new=True)
    assert (await loaded(backend)).events.next_seq == 2


async def test_the_first_batch_begins_at_zero(backend: JsonlBackend, root: Path) -> None:
    """B3: a first batch at another seq leaves nothing, not even a folder."""
    with pytest.raises(UnexpectedSeqError):
        await append(backend, batch(1, 1), None, new=True)
    assert await listed(backend) == []
    assert list(root.glob("*/*")) == []


@pytest.mark.parametrize(
    ("call", "skip"), [("create", 0), ("write_at", 0), ("sync", 0), ("sync", 1), ("link", 0)]
)
async def test_a_failed_publication_leaves_nothing(
    make: OpenBackend, files: FailingFiles, root: Path, call: str, skip: int
) -> None:
    """JL90, B2: nothing of a failed first write is left, and the next one stores everything."""
    backend = make(files)
    claim = await backend.claim(META.id, this_process(), meta=META)
    files.fail(call, skip=skip, number=errno.ENOSPC)
    if call == "write_at":
        files.fail("remove")  # not even the temporary file can be removed: it is cleaned up later
    with pytest.raises(BackendError, match="No space left") as caught:
        await append(backend, batch(0, 2), claim, new=True)
    assert caught.value.wrote_nothing
    assert await backend.load_stored(META.id) is None
    await append(backend, batch(0, 2), claim, new=True)
    assert (await loaded(backend)).events.next_seq == 2


async def test_a_publication_of_unknown_outcome_is_published_again(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """B3, D2: the folder could not be synced; the batch is written and named again, not merely synced."""
    backend = make(files)
    claim = await backend.claim(META.id, this_process(), meta=META)
    files.fail("sync", skip=2)
    with pytest.raises(BackendError, match="could not be synced") as caught:
        await append(backend, batch(0, 2), claim, new=True)
    assert not caught.value.wrote_nothing
    files.rules.clear()
    files.calls.clear()
    await append(backend, batch(0, 2), claim, new=True)
    wanted = {"create", "write_at", "sync", "link", "rename"}
    calls = [call for call in files.calls if call in wanted]
    assert sorted(calls[:4]) == ["create", "sync", "sync", "write_at"]
    assert calls[4:] == ["rename", "sync"]
    await append(backend, batch(2, 1), claim)
    assert (await loaded(backend)).events.next_seq == 3
    await backend.release(claim)


async def test_without_hard_links(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """B1: on a file system without hard links the file is renamed after its absence was checked."""
    backend = make(files)
    claim = await backend.claim(META.id, this_process(), meta=META)
    files.fail("link", number=errno.EOPNOTSUPP)
    await append(backend, batch(0, 2), claim, new=True)
    await append(backend, batch(2, 1), claim)
    assert (await loaded(backend)).events.next_seq == 3
    assert [path.name for path in root.rglob("*.tmp")] == []


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EOPNOTSUPP])
async def test_another_program_publishes_first(
    make: OpenBackend, files: FailingFiles, root: Path, compression: str, number: int
) -> None:
    """B1: a log that appears at the last moment is not replaced, with hard links or without."""
    backend = make(files)
    claim = await backend.claim(META.id, this_process(), meta=META)
    name = "session.jsonl.zstd" if compression == "zstd" else "session.jsonl"
    log = root / "--srv-app--" / "s-1" / name
    line = header_line(META)

    def publish() -> None:
        log.write_bytes(frames.compress(line) if compression == "zstd" else line)

    files.stop("link", publish)
    if number == errno.EOPNOTSUPP:
        files.fail("link", number=number)
    with pytest.raises(SessionExistsError):
        await append(backend, batch(0, 1), claim, new=True)
    assert (await loaded(backend)).events.next_seq == 0


def test_only_old_temporaries_are_removed(tmp_path: Path) -> None:
    """L1: a writer cleans up temporary files older than an hour, and nothing else."""
    old, young, other = (
        tmp_path / "session.jsonl.0123456789ab.tmp",
        tmp_path / "session.jsonl.zstd.ba9876543210.tmp",
        tmp_path / "notes.tmp",
    )
    for path in (old, young, other):
        path.write_bytes(b"")
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    files = FileLayer()
    with files.folder(str(tmp_path)) as folder:
        assert remove_temporaries(files, folder) == 1
    assert not old.exists()
    assert young.exists()
    assert other.exists()


async def test_a_claim_cleans_up_after_a_crash(backend: JsonlBackend, root: Path) -> None:
    """The leftover of a crashed publication is removed by the next writer, not by a reader."""
    await store(backend, batch(0, 1))
    old = root / "--srv-app--" / "s-1" / "session.jsonl.zstd.0123456789ab.tmp"
    old.write_bytes(b"")
    os.utime(old, (1, 1))
    await loaded(backend)
    await listed(backend)
    assert old.exists()
    await append(backend, batch(1, 1), None)
    assert not old.exists()


@pytest.mark.parametrize("session_id", ["", "x" * 4096, "~" * 49])
async def test_ids_that_cannot_be_stored(backend: JsonlBackend, session_id: str) -> None:
    """S1, JL3: an empty or too long id is refused by every hook before anything is touched."""
    meta = SessionHeader(id=session_id, created_at=1)
    with pytest.raises(InvalidSessionIdError):
        await append(backend, batch(0, 1), None, meta=meta, new=True)
    with pytest.raises(InvalidSessionIdError):
        await backend.load_stored(session_id)


async def test_an_id_cannot_leave_the_root(backend: JsonlBackend, root: Path) -> None:
    """JL35, S1: an id full of dots and slashes is one folder below the root."""
    meta = SessionHeader(id="../../etc/passwd", created_at=1, cwd="/srv/../../x")
    await store(backend, batch(0, 1), meta=meta)
    assert [str(path.relative_to(root)) for path in root.glob("*/*")] == [
        "--srv-..-..-x--/..~002F..~002Fetc~002Fpasswd"
    ]
