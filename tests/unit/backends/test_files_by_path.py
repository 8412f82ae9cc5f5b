"""Reading where folders cannot be opened: the same answers, no links followed, no writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import META, append, batch, event, listed, loaded, store, turn
from turnlog.backends.jsonl.files_by_path import PathFiles
from turnlog.errors import BackendError, UsageError
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.claims import this_process


async def test_every_read_gives_the_same(make: OpenBackend, root: Path) -> None:
    """W1: whole, suffix, revision, listing and scan answer as they do with folder descriptors."""
    other = make()
    await store(other, EncodedBatch.of(turn(0)), batch(2, 3))
    reader = make(PathFiles())
    assert list((await loaded(reader)).events) == list((await loaded(other)).events)
    part = await reader.load_stored_from(META.id, -2, None)
    assert part is not None
    assert list(part.events) == [event(3), event(4)]
    assert await reader.read_stored_revision(META.id) == await other.read_stored_revision(META.id)
    assert await listed(reader) == await listed(other)
    assert len([piece async for piece in reader.scan_stored(META.id)]) == len(
        [piece async for piece in other.scan_stored(META.id)]
    )
    assert await reader.load_stored("nothing") is None
    assert not reader.files._folders  # type: ignore[attr-defined]  # every folder was given back


async def test_writing_is_refused(make: OpenBackend, root: Path) -> None:
    """W1: without locks every write hook and every claim is a usage error, and nothing is touched."""
    reader = make(PathFiles())
    with pytest.raises(UsageError, match="not written"):
        await append(reader, batch(0, 1), None, new=True)
    with pytest.raises(UsageError, match="not written"):
        await reader.claim(META.id, this_process(), meta=META)
    assert not root.exists()


async def test_links_are_not_followed(make: OpenBackend, root: Path, tmp_path: Path) -> None:
    """S1: a linked session folder or log leads nowhere."""
    await store(make(), batch(0, 1))
    log = next(root.glob("*/*/session.jsonl*"))
    moved = tmp_path / "log"
    log.rename(moved)
    log.symlink_to(moved)
    reader = make(PathFiles())
    with pytest.raises(BackendError):
        await reader.load_stored(META.id)
    files = PathFiles()
    os.symlink(log.parent, log.parent.parent / "linked")
    with pytest.raises(NotADirectoryError):
        files.open_folder(str(root), ("--srv-app--", "linked"))
