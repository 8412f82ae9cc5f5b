"""`LossyFiles` forgets exactly what was not synced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from turnlog.backends.jsonl.files import CREATE_NEW, OPEN_OR_CREATE, READ
from turnlog.testing.lossy_files import LossyFiles, PowerModel


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> LossyFiles:
    return LossyFiles(PowerModel(tmp_path))


def write(files: LossyFiles, folder: Path, name: str, data: bytes, *, sync: bool) -> None:
    """Create a file with some bytes."""
    with files.folder(str(folder)) as place:
        fd = files.open(name, CREATE_NEW, folder=place)
        files.write_at(fd, data, 0)
        if sync:
            files.sync_data(fd)
        files.close(fd)


def sync_folder(files: LossyFiles, folder: Path) -> None:
    """Sync one folder."""
    with files.folder(str(folder)) as place:
        files.sync(place)


def cut(files: LossyFiles) -> None:
    """Kill the process and cut the power."""
    files.die()
    files.model.power_cut()


def test_what_was_there_before_is_durable(tmp_path: Path) -> None:
    """A tree that exists when the model is made survives."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_bytes(b"old")
    cut(LossyFiles(PowerModel(tmp_path)))
    assert (tmp_path / "a" / "old").read_bytes() == b"old"


def test_bytes_and_name_need_a_sync_each(files: LossyFiles, tmp_path: Path) -> None:
    """Without a folder sync the name is lost, without a file sync the bytes are."""
    write(files, tmp_path, "both", b"data", sync=True)
    write(files, tmp_path, "name-only", b"data", sync=False)
    sync_folder(files, tmp_path)
    write(files, tmp_path, "bytes-only", b"data", sync=True)
    cut(files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["both", "name-only"]
    assert (tmp_path / "both").read_bytes() == b"data"
    assert (tmp_path / "name-only").read_bytes() == b""


def test_a_new_folder_needs_its_parent_synced(files: LossyFiles, tmp_path: Path) -> None:
    """A folder whose parent was not synced is gone with everything in it."""
    with files.folder(str(tmp_path)) as top:
        files.make_folder("kept", folder=top)
        files.sync(top)
        files.make_folder("lost", folder=top)
    for name in ("kept", "lost"):
        write(files, tmp_path / name, "file", b"x", sync=True)
        sync_folder(files, tmp_path / name)
    cut(files)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").read_bytes() == b"x"


def test_unsynced_changes_of_a_file_are_undone(files: LossyFiles, tmp_path: Path) -> None:
    """Appending, overwriting and truncating are all volatile until the next sync."""
    write(files, tmp_path, "log", b"one\n", sync=True)
    sync_folder(files, tmp_path)
    fd = files.open(str(tmp_path / "log"), OPEN_OR_CREATE)
    files.write_at(fd, b"two\n", 4)
    files.truncate(fd, 2)
    assert (tmp_path / "log").read_bytes() == b"on"
    cut(files)
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_renames_links_and_removals_need_a_folder_sync(files: LossyFiles, tmp_path: Path) -> None:
    """Names are as they were at the last sync of the folder."""
    write(files, tmp_path, "a", b"a", sync=True)
    write(files, tmp_path, "b", b"b", sync=True)
    sync_folder(files, tmp_path)
    with files.folder(str(tmp_path)) as top:
        files.rename("a", "renamed", folder=top)
        files.remove("b", folder=top)
        files.link("renamed", "linked", folder=top)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linked", "renamed"]
    cut(files)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"a", "b": b"b"}


def test_a_link_shares_the_bytes(files: LossyFiles, tmp_path: Path) -> None:
    """A synced second name of a synced file survives, as does a file whose other name was removed."""
    write(files, tmp_path, "temp", b"data", sync=True)
    with files.folder(str(tmp_path)) as top:
        files.link("temp", "final", folder=top)
        files.remove("temp", folder=top)
        files.sync(top)
    cut(files)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"final": b"data"}


def test_a_removed_file_does_not_leak_into_a_new_one(files: LossyFiles, tmp_path: Path) -> None:
    """A new file is empty after a cut even if the system gave it the number of an old one."""
    for _ in range(20):
        write(files, tmp_path, "file", b"old", sync=True)
        sync_folder(files, tmp_path)
        with files.folder(str(tmp_path)) as top:
            files.remove("file", folder=top)
        write(files, tmp_path, "file", b"new", sync=False)
        sync_folder(files, tmp_path)
        with files.folder(str(tmp_path)) as top:
            files.remove("file", folder=top)
    write(files, tmp_path, "file", b"last", sync=False)
    sync_folder(files, tmp_path)
    cut(files)
    assert (tmp_path / "file").read_bytes() == b""


def test_a_dead_process_changes_nothing(files: LossyFiles, tmp_path: Path) -> None:
    """After dying every changing call fails; locks are free and reading handles are gone."""
    write(files, tmp_path, "log", b"x", sync=True)
    sync_folder(files, tmp_path)
    lock = files.open(str(tmp_path / "log"), OPEN_OR_CREATE)
    assert files.lock(lock)
    files.die()
    assert not files.is_open
    changes: list[Callable[[], object]] = [
        lambda: files.open(str(tmp_path / "new"), CREATE_NEW),
        lambda: files.make_folder(str(tmp_path / "folder")),
        lambda: files.write_at(lock, b"y", 0),
        lambda: files.truncate(lock, 0),
        lambda: files.sync(lock),
        lambda: files.open(str(tmp_path / "log"), READ),
    ]
    for change in changes:
        with pytest.raises(OSError, match="dead"):
            change()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    second = LossyFiles(files.model)
    assert second.lock(second.open(str(tmp_path / "log"), OPEN_OR_CREATE))
    second.die()
