"""The root folder, look-ups in it, and bad input at its door."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.lanes import need
from tests.faults.power_loss import power_loss_mount
from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import META, OTHER, FailingFiles, append, batch, event, listed, loaded, store
from turnlog.backends.file_systems import file_system_type
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import FileLayer, FolderEntry
from turnlog.backends.jsonl.root import Root
from turnlog.errors import (
    BackendError,
    CorruptLogError,
    InvalidSessionIdError,
    SessionNotFoundError,
    UnsupportedFormatError,
    UsageError,
)
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader, header_line
from turnlog.persistence.claims import this_process


async def test_a_relative_root_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JL5: the root is made absolute once; a later change of directory does not move it."""
    monkeypatch.chdir(tmp_path)
    backend = JsonlBackend("here")
    monkeypatch.chdir("/")
    await store(backend, batch(0, 1))
    assert (tmp_path / "here").is_dir()
    await backend.aclose()


def test_a_root_that_is_no_folder(tmp_path: Path) -> None:
    """JL83: a file in the root's place is refused at once."""
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(BackendError, match="not a readable folder"):
        JsonlBackend(path)


async def test_a_root_that_becomes_unusable(root: Path) -> None:
    """JL83, JL84, JL86: a file that takes the place of the root or of a project surfaces in every hook."""
    backend = JsonlBackend(root)
    root.write_text("x")
    for call in (backend.load_stored("s"), listed(backend), append(backend, batch(0, 1), None, new=True)):
        with pytest.raises(BackendError, match="stands where a folder has to be"):
            await call
    root.unlink()
    root.mkdir()
    (root / "--srv-app--").write_text("x")
    with pytest.raises(BackendError, match="stands where a folder has to be"):
        await append(backend, batch(0, 1), None, new=True)
    assert await backend.load_stored(META.id) is None
    await backend.aclose()


async def test_symbolic_links_are_not_followed(backend: JsonlBackend, root: Path, tmp_path: Path) -> None:
    """S1: a linked project, session folder, log or lock leads nowhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root.mkdir()
    (root / "--srv-app--").symlink_to(outside)
    with pytest.raises(BackendError):
        await append(backend, batch(0, 1), None, new=True)
    (root / "--srv-app--").unlink()
    (root / "--srv-app--").mkdir()
    (root / "--srv-app--" / "s-1").symlink_to(outside)
    with pytest.raises(BackendError):
        await append(backend, batch(0, 1), None, new=True)
    assert await backend.load_stored(META.id) is None
    (root / "--srv-app--" / "s-1").unlink()
    await store(backend, batch(0, 1))
    log = next(root.glob("*/*/session.jsonl*"))
    log.rename(outside / "log")
    log.symlink_to(outside / "log")
    with pytest.raises(BackendError):
        await backend.load_stored(META.id)
    with pytest.raises(BackendError):
        await append(backend, batch(1, 1), None)
    (entry,) = await listed(backend)
    assert (entry.status, entry.problem) == ("corrupt", "the log is not a file")
    log.unlink()
    (log.parent / "session.lock").unlink()
    (log.parent / "session.lock").symlink_to(outside / "lock")
    with pytest.raises(BackendError):
        await append(backend, batch(0, 1), None, new=True)
    assert sorted(path.name for path in outside.iterdir()) == ["log"]


@pytest.mark.parametrize("held", ["zstd", "none"])
async def test_the_root_decides_the_encoding(root: Path, held: str) -> None:
    """Z25: a root's own encoding is continued; the other one is refused unless mixing is allowed."""
    other = "none" if held == "zstd" else "zstd"
    first = JsonlBackend(root, compression=held)
    await store(first, batch(0, 1))
    with pytest.raises(UsageError, match="mixed=1"):
        JsonlBackend(root, compression=other)
    same = JsonlBackend(root)
    await store(same, batch(0, 1), meta=OTHER)
    await store(same, batch(0, 1), meta=SessionHeader(id="s-3", created_at=1))
    assert {path.name for path in root.glob("*/*/session.jsonl*")} == {
        "session.jsonl.zstd" if held == "zstd" else "session.jsonl"
    }
    mixed = JsonlBackend(root, compression=other, mixed=True)
    await append(mixed, batch(1, 1), None)  # a session goes on in its own encoding
    await store(mixed, batch(0, 1), meta=SessionHeader(id="s-4", created_at=1))
    assert len({path.name for path in root.glob("*/*/session.jsonl*")}) == 2
    for reader in (first, mixed):
        assert {entry.status for entry in await listed(reader)} == {"ok"}
        assert (await loaded(reader, "s-4")).events.next_seq == 1
    for backend in (first, same, mixed):
        await backend.aclose()


async def test_an_empty_root_gets_zstd(root: Path) -> None:
    """Z9, Z12: without a choice new sessions are compressed."""
    backend = JsonlBackend(root)
    await store(backend, batch(0, 1))
    assert next(root.glob("*/*/session.jsonl*")).name == "session.jsonl.zstd"
    await backend.aclose()


def test_an_unknown_compression_is_refused(root: Path) -> None:
    """A compression that does not exist is the caller's mistake."""
    with pytest.raises(UsageError, match="zstd or none"):
        JsonlBackend(root, compression="lz4")


def test_looking_for_the_encoding(root: Path) -> None:
    """Folders without a log, turnlog's own folder and a project that goes away are passed over."""
    files = FailingFiles()
    (root / ".turnlog" / "x").mkdir(parents=True)
    (root / "--a--" / "empty").mkdir(parents=True)
    (root / "--b--" / "s").mkdir(parents=True)
    (root / ".turnlog" / "x" / "session.jsonl").write_bytes(b"")
    (root / "--b--" / "s" / "session.jsonl").write_bytes(b"")
    assert Root(files, str(root)).stored_encoding() == "none"
    files.fail("open_folder", skip=1, number=2)
    assert Root(files, str(root)).path == str(root)
    assert Root(FileLayer(), str(root / "nothing")).stored_encoding() is None
    assert Root(FileLayer(), str(root / "nothing")).encoding() == "zstd"


def test_a_folder_that_cannot_be_read_is_a_typed_error(root: Path) -> None:
    """An I/O error while a store is opened names the folder and the system's reason."""
    (root / "--b--" / "s").mkdir(parents=True)
    for skip, place in ((1, str(root)), (2, f"{root}/--b--"), (3, f"{root}/--b--/s")):
        files = FailingFiles()
        files.fail("open_folder", skip=skip)
        with pytest.raises(BackendError, match=r"cannot be read|not a readable folder") as refused:
            Root(files, str(root), compression="none")
        assert refused.value.path == place


def test_a_session_that_is_deleted_meanwhile_is_passed_over(root: Path) -> None:
    """A folder that goes away between its name and its content does not keep a store from being opened."""

    class Vanishing(FileLayer):
        def entries(self, folder: int) -> list[FolderEntry]:
            found = super().entries(folder)
            shutil.rmtree(root / "--b--" / "s", ignore_errors=True)
            return found

    (root / "--b--" / "s").mkdir(parents=True)
    (root / "--b--" / "t").mkdir()
    assert Root(Vanishing(), str(root), compression="none").known_encoding == "none"


async def test_a_failure_does_not_decide_the_encoding(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """A passing failure of the look at the root is not remembered."""
    await store(make(), batch(0, 1))
    backend = JsonlBackend(root, files=files)
    files.fail("open_folder")
    with pytest.raises(BackendError, match="Input/output error"):
        backend.root.encoding()
    assert backend.root.known_encoding is None
    assert backend.root.encoding() == backend.root.known_encoding
    await backend.aclose()


# Looking sessions up


async def test_a_known_directory_means_one_path(make: OpenBackend, files: FailingFiles) -> None:
    """With the working directory known, no other project is looked at, and no log is parsed."""
    writer = make()
    for number in range(9):
        await store(
            writer, batch(0, 1), meta=SessionHeader(id=f"s-{number}", created_at=1, cwd=f"/w{number}")
        )
    backend = make(files)
    await append(backend, batch(1, 1), None, meta=SessionHeader(id="s-4", created_at=1, cwd="/w4"))
    assert backend.discovery.walks == 0


async def test_an_id_alone_is_remembered(backend: JsonlBackend) -> None:
    """JL15: the first look-up by id walks the projects; the next ones check the remembered place."""
    await store(backend, batch(0, 1))
    backend.discovery.forget("s-1")
    for _ in range(5):
        await loaded(backend)
    assert backend.discovery.walks == 1
    assert backend.locate(META) == backend.discovery.known("s-1").log_path  # type: ignore[union-attr]  # just found


async def test_a_remembered_place_that_is_gone(backend: JsonlBackend, root: Path) -> None:
    """A session that now has another project folder is not found in its old place."""
    await store(backend, batch(0, 1))
    await loaded(backend)
    (root / "--srv-app--").rename(root / "--else--")
    with pytest.raises(CorruptLogError, match="not here"):
        await loaded(backend)


async def test_two_artifacts_of_one_id_are_damage(backend: JsonlBackend, root: Path) -> None:
    """JL77, Z26: two encodings, or two projects, for one id: every look-up names both."""
    await store(backend, batch(0, 1))
    log = next(root.glob("*/*/session.jsonl*"))
    twin = log.with_name("session.jsonl" if log.name.endswith("zstd") else "session.jsonl.zstd")
    twin.write_bytes(b"")
    for call in (loaded(backend), backend.read_stored_revision(META.id), append(backend, batch(1, 1), None)):
        with pytest.raises(CorruptLogError, match="stored twice"):
            await call
    twin.unlink()
    (root / "--zz--").mkdir()
    shutil.copytree(log.parent, root / "--zz--" / "s-1")
    backend.discovery.forget("s-1")
    with pytest.raises(CorruptLogError, match="stored twice"):
        await loaded(backend)


async def test_a_flat_log_is_named_and_not_read(backend: JsonlBackend, root: Path) -> None:
    """JL69, JL70: the single-file layout of early releases is refused by name; others are not affected."""
    await store(backend, batch(0, 1))
    for name in ("old.jsonl", "older.jsonl.zstd"):
        (root / "--srv-app--" / name).write_bytes(header_line(META))
        with pytest.raises(UnsupportedFormatError, match="one file per session"):
            await backend.load_stored(name.partition(".")[0])
    assert (await loaded(backend)).events.next_seq == 1


async def test_locate_without_looking(make: OpenBackend, root: Path, compression: str) -> None:
    """JL15: the path where a session is or would be, without touching the disk."""
    name = "session.jsonl.zstd" if compression == "zstd" else "session.jsonl"
    assert make().locate(OTHER) == str(root / "--srv-app--" / "s-2" / name)
    assert not root.exists()


async def test_watching_sees_changes_of_other_processes(make: OpenBackend) -> None:
    """A watch yields after an append, whoever made it, and again after the next."""
    a, b = make(), make()
    claim = await store(a, batch(0, 1), keep=True)
    watch = b.watch(META.id)
    for seq in (1, 2):
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.12)
        assert not waiting.done()
        await append(a, batch(seq, 1), claim)
        await asyncio.wait_for(waiting, 5)
    await watch.aclose()  # type: ignore[attr-defined]  # an async generator


# File systems


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:25 / /mnt/na\\040me rw - nfs4 server:/x rw
31 22 0:26 / /mnt/na\\040me/tmp rw - tmpfs none rw
32 22 0:27 / /over rw - ext4 /dev/b rw
33 22 0:28 / /over rw - cifs //s/x rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "safe"),
    [
        ("/srv", "ext4", True),
        ("/mnt/na me/x", "nfs4", False),
        ("/mnt/na me/tmp/x", "tmpfs", True),
        ("/mnt/na meagre", "ext4", True),
        ("/over/x", "cifs", False),
    ],
)
def test_which_file_systems_have_safe_locks(tmp_path: Path, path: str, kind: str, safe: bool) -> None:
    """W1: network file systems and unknown ones are warned about; the innermost, latest mount counts."""
    table = tmp_path / "mounts"
    table.write_text(MOUNTS)
    assert file_system_type(path, str(table)) == kind
    assert (Root(FileLayer(), path).lock_warning(str(table)) is None) == safe
    assert file_system_type(path, str(tmp_path / "nothing")) is None
    assert Root(FileLayer(), path).lock_warning(str(tmp_path / "nothing")) is None


def _mounted(folder: Path, *command: str) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"no mount is possible here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 64 KiB."""
    yield from _mounted(tmp_path / "small", "mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "none")


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while file.write(b"x" * 512):
            pass


async def test_a_full_disk_loses_nothing(small_disk: Path) -> None:
    """B2: on a disk that is full, an append fails, leaves nothing, and succeeds when there is room."""
    backend = JsonlBackend(small_disk / "root", compression="none")
    claim = await store(backend, batch(0, 2), keep=True)
    big = [event(2, title=os.urandom(40_000).hex())]
    with pytest.raises(BackendError, match="No space left") as caught:
        await append(backend, EncodedBatch.of(big), claim)
    assert caught.value.wrote_nothing
    assert (await loaded(backend)).events.next_seq == 2
    await append(backend, batch(2, 1), claim)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        _fill(filler)
    other = SessionHeader(id="s-7", created_at=1, cwd="/srv/app")
    with pytest.raises(BackendError, match="No space left"):
        await append(backend, batch(0, 1), None, meta=other, new=True)
    filler.unlink()
    await append(backend, batch(0, 1), None, meta=other, new=True)
    assert [entry.status for entry in await listed(backend)] == ["live", "ok"]
    await backend.aclose()


async def test_a_read_only_root_can_be_read(small_disk: Path) -> None:
    """R3: reading needs no writing; a write is one clear error and leaves nothing."""
    writer = JsonlBackend(small_disk / "root")
    await store(writer, batch(0, 2))
    await writer.aclose()
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,ro", str(small_disk)], check=True)
    backend = JsonlBackend(small_disk / "root")
    assert (await loaded(backend)).events.next_seq == 2
    assert [entry.status for entry in await listed(backend)] == ["ok"]
    for call in (
        append(backend, batch(2, 1), None),
        append(backend, batch(0, 1), None, meta=OTHER, new=True),
    ):
        with pytest.raises(BackendError, match="Read-only file system"):
            await call
    await backend.aclose()


@pytest.mark.filterwarnings("ignore::turnlog.backends.jsonl.root.UnsafeLockWarning")
async def test_a_file_system_without_hard_links_and_case(tmp_path: Path) -> None:
    """B1, S1: sessions are published without links; an id in another case of a stored one is refused."""
    with power_loss_mount(tmp_path / "m", nocase=True, nolinks=True) as mount:
        (mount.place / "one").touch()
        with pytest.raises(PermissionError):
            os.link(mount.place / "one", mount.place / "two")
        backend = JsonlBackend(mount.place / "root")
        await store(backend, batch(0, 2), batch(2, 1))
        assert (await loaded(backend)).events.next_seq == 3
        with pytest.raises(InvalidSessionIdError, match="case"):
            await append(
                backend,
                batch(0, 1),
                None,
                meta=SessionHeader(id="S-1", created_at=1, cwd="/srv/app"),
                new=True,
            )
        await backend.aclose()


# Bad content


@pytest.mark.parametrize(
    "line",
    [
        b"\xef\xbb\xbf" + event(1).line,
        b"\x00" * 9,
        b'{"type":"session/title","seq":1,"time":5,"data":{"title":"\xff"}}',
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"null",
        b"5",
        b"[]",
        b"",
    ],
)
async def test_bad_lines_at_the_end_are_torn(
    backend: JsonlBackend, root: Path, compression: str, line: bytes
) -> None:
    """R2: BOM, NUL, invalid UTF-8, nesting, scalars: torn at the end of a plain log, damage in a frame."""
    await store(backend, batch(0, 1))
    log = next(root.glob("*/*/session.jsonl*"))
    log.write_bytes(
        log.read_bytes() + (frames.compress(line + b"\n") if compression == "zstd" else line + b"\n")
    )
    if compression == "zstd":
        with pytest.raises(CorruptLogError):
            await loaded(backend)
    elif b"session/title" in line:
        with pytest.raises(CorruptLogError):  # it holds, or states that it is, the very event that is due
            await loaded(backend)
    else:
        found = await loaded(backend)
        assert found.events.next_seq == 1
        assert found.torn_marker is not None
        (entry,) = await listed(backend)
        assert entry.status == ("torn" if len(line) < 65536 else "unknown")


async def test_crlf_and_a_line_of_fifty_megabytes(
    backend: JsonlBackend, root: Path, compression: str
) -> None:
    """A carriage return is white space; the size of a line has no limit."""
    await store(backend, batch(0, 1))
    log = next(root.glob("*/*/session.jsonl*"))
    big = b'{"type":"session/title","seq":1,"time":5,"data":{"title":"' + b"x" * 50_000_000 + b'"}}\r\n'
    log.write_bytes(log.read_bytes() + (frames.compress(big) if compression == "zstd" else big))
    assert (await loaded(backend)).events.next_seq == 2
    await append(backend, batch(2, 1), None)
    part = await backend.load_stored_from(META.id, -1, None)
    assert part is not None
    assert [e.seq for e in part.events] == [2]


@pytest.mark.parametrize("name", ["session.lock", "log", "folder"])
async def test_an_error_names_the_whole_path(backend: JsonlBackend, root: Path, name: str) -> None:
    """Somebody has to find the file: a name alone stands in every session's folder."""
    await store(backend, batch(0, 1))
    log = next(root.glob("*/s-1/session.jsonl*"))
    place = {"session.lock": log.parent / "session.lock", "log": log, "folder": log.parent}[name]
    place.rename(place.with_name("moved"))
    place.symlink_to(place.with_name("moved"))
    with pytest.raises((BackendError, SessionNotFoundError)) as found:
        await (
            backend.load_stored("s-1") if name == "log" else backend.claim("s-1", this_process(), meta=META)
        )
    assert isinstance(found.value, BackendError)
    assert found.value.path == str(place)
    assert "symbolic link" in found.value.reason
