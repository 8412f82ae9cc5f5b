"""Images beside the log: what is accepted, how it is published, what is checked when it is read."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from turnlog.errors import BackendError, UsageError
from turnlog.persistence import attachments
from turnlog.persistence.attachments import AttachmentStore, image_block
from turnlog.persistence.image_header import ImageHeader, read_image_header


def png(width: int = 3, height: int = 2, padding: int = 0) -> bytes:
    """Make a valid grey PNG; `padding` random-free bytes go into a text chunk."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    text = chunk(b"tEXt", b"k\0" + b"x" * padding) if padding else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + text + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def gif(width: int = 5, height: int = 4) -> bytes:
    """Make the header of a GIF."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0;"


def jpeg(width: int = 7, height: int = 6, before: bytes = b"") -> bytes:
    """Make a JPEG up to its frame header, with an application segment and `before` in front of it."""
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes(3)
    return b"\xff\xd8" + app + before + frame + b"\xff\xd9"


def webp(kind: bytes, body: bytes) -> bytes:
    """Make a WebP file with one chunk."""
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def files(root: Path) -> list[Path]:
    """List every file below a folder."""
    return [path for path in root.rglob("*") if path.is_file()]


WEBP_LOSSY = webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 9 | 0x4000, 8) + bytes(4))
WEBP_LOSSLESS = webp(b"VP8L", b"\x2f" + ((11 - 1) | (10 - 1) << 14).to_bytes(4, "little") + bytes(8))
WEBP_EXTENDED = webp(b"VP8X", bytes(4) + (12).to_bytes(3, "little") + (11).to_bytes(3, "little"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (png(3, 2), ImageHeader("image/png", 3, 2)),
        (gif(5, 4), ImageHeader("image/gif", 5, 4)),
        (jpeg(7, 6), ImageHeader("image/jpeg", 7, 6)),
        (jpeg(7, 6, before=b"\xff\xff\xff\x01"), ImageHeader("image/jpeg", 7, 6)),
        (WEBP_LOSSY, ImageHeader("image/webp", 9, 8)),
        (WEBP_LOSSLESS, ImageHeader("image/webp", 11, 10)),
        (WEBP_EXTENDED, ImageHeader("image/webp", 13, 12)),
    ],
)
def test_header_states_type_and_size(data: bytes, expected: ImageHeader) -> None:
    """Each of the four types is told by its leading bytes, and its size is read from its header."""
    assert read_image_header(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"BM" + bytes(40),
        b"RIFF" + bytes(4) + b"WAVE" + bytes(30),
        png()[:20],
        png()[:12] + b"JUNK" + png()[16:],
        png(0, 2),
        gif()[:8],
        jpeg()[:24],
        b"\xff\xd8\xff\xd9\0\0\0\0",
        b"\xff\xd8\xff\xe0\0\x04\0\0junkjunk",
        b"\xff\xd8\xff\xe0\0\x00\0\0",
        WEBP_LOSSY[:28],
        WEBP_LOSSLESS[:20] + b"\0" + WEBP_LOSSLESS[21:],
        WEBP_EXTENDED[:29],
    ],
)
def test_bytes_that_state_no_image_are_refused(data: bytes) -> None:
    """Other formats, cut headers and images without pixels are a usage error, never another exception."""
    with pytest.raises(UsageError):
        read_image_header(data)


@pytest.mark.parametrize("data", [png(), jpeg(), gif(), WEBP_LOSSY, WEBP_LOSSLESS, WEBP_EXTENDED])
def test_every_prefix_of_an_image_is_read_or_refused(data: bytes) -> None:
    """However an image is cut, the answer is its size or a usage error."""
    whole = read_image_header(data)
    for end in range(len(data)):
        try:
            assert read_image_header(data[:end]) == whole
        except UsageError:
            continue


def test_block_has_the_shape_of_the_log_format() -> None:
    """The block carries id, type, size in bytes and pixels, and the name, in wire order."""
    data = png(3, 2)
    block = image_block(data, "image/png", name="plan.png")
    assert list(block) == ["type", "attachment"]
    assert list(block["attachment"].items()) == [
        ("attachmentId", f"sha256:{hashlib.sha256(data).hexdigest()}"),
        ("mediaType", "image/png"),
        ("bytes", len(data)),
        ("width", 3),
        ("height", 2),
        ("name", "plan.png"),
    ]
    assert "name" not in image_block(data)["attachment"]


def test_limits_of_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many bytes, too long a side, too many pixels and a wrong stated type are refused."""
    with pytest.raises(UsageError, match="image/png"):
        image_block(png(), "image/gif")
    with pytest.raises(UsageError, match="8192 a side"):
        image_block(gif(8193, 1))
    with pytest.raises(UsageError, match="64000000"):
        image_block(gif(8192, 8192))
    assert image_block(gif(8192, 7812))["attachment"]["width"] == 8192
    monkeypatch.setattr(attachments, "MAX_IMAGE_BYTES", len(png()))
    assert image_block(png())
    with pytest.raises(UsageError, match="bytes"):
        image_block(png(padding=1))


async def test_memory_store_keeps_images() -> None:
    """Without a root an image is kept in memory under the same id."""
    store = AttachmentStore(None)
    block = await store.put(png())
    key = block["attachment"]["attachmentId"]
    assert await store.get(key) == png()
    assert await store.exists(key)
    other = f"sha256:{'0' * 64}"
    assert not await store.exists(other)
    with pytest.raises(BackendError, match="has no image"):
        await store.get(other)
    await store.aclose()


async def test_file_store_layout_and_modes(tmp_path: Path) -> None:
    """An image lies under its digest, 0600 in 0700 folders, and no temporary file is left (S1)."""
    store = AttachmentStore(tmp_path / "own")
    data = png()
    digest = hashlib.sha256(data).hexdigest()
    key = (await store.put(data))["attachment"]["attachmentId"]
    file = tmp_path / "own" / "attachments" / digest[:2] / digest
    assert file.read_bytes() == data
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for folder in (file.parent, file.parent.parent, tmp_path / "own"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert files(tmp_path) == [file]
    assert await store.get(key) == data
    assert await store.exists(key)
    await store.aclose()
    await store.aclose()


async def test_second_put_of_an_image_keeps_the_file(tmp_path: Path) -> None:
    """Putting the same bytes again writes nothing new."""
    store = AttachmentStore(tmp_path)
    await asyncio.gather(*(store.put(png()) for _ in range(5)))
    (file,) = files(tmp_path)
    inode = file.stat().st_ino
    await store.put(png())
    assert file.stat().st_ino == inode
    await store.aclose()


async def test_damaged_image_is_reported_and_repaired_by_putting_it_again(tmp_path: Path) -> None:
    """Bytes that no longer have their digest are an error to read; a new put replaces them."""
    store = AttachmentStore(tmp_path)
    key = (await store.put(png()))["attachment"]["attachmentId"]
    (file,) = files(tmp_path)
    file.write_bytes(b"rot")
    with pytest.raises(BackendError, match="digest"):
        await store.get(key)
    await store.put(png())
    assert await store.get(key) == png()
    await store.aclose()


async def test_absent_images(tmp_path: Path) -> None:
    """An image that was never put, in an absent root or an absent shard, does not exist; nothing is made."""
    store = AttachmentStore(tmp_path / "none")
    key = f"sha256:{'ab' * 32}"
    assert not await store.exists(key)
    with pytest.raises(BackendError, match="has no image"):
        await store.get(key)
    assert not (tmp_path / "none").exists()
    await store.aclose()


@pytest.mark.parametrize(
    "bad", ["", "sha256:", f"sha256:{'A' * 64}", "a" * 64, f"sha256:{'../' * 21}a", f"sha256:{'0' * 64}\n"]
)
async def test_ids_that_are_none(tmp_path: Path, bad: str) -> None:
    """What is no id never becomes a path."""
    store = AttachmentStore(tmp_path)
    for call in (store.get, store.exists):
        with pytest.raises(UsageError):
            await call(bad)


@pytest.mark.parametrize("place", ["attachments", "shard", "file"])
async def test_symlinks_are_not_followed_out_of_the_root(tmp_path: Path, place: str) -> None:
    """A symlink in place of a folder or a file is an error for reading and writing alike (S1)."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    data = png()
    digest = hashlib.sha256(data).hexdigest()
    link = {
        "attachments": root / "attachments",
        "shard": root / "attachments" / digest[:2],
        "file": root / "attachments" / digest[:2] / digest,
    }[place]
    link.parent.mkdir(parents=True)
    target = outside / digest[:2] / digest
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    link.symlink_to({"attachments": outside, "shard": target.parent, "file": target}[place])
    store = AttachmentStore(root)
    with pytest.raises(BackendError):
        await store.get(f"sha256:{digest}")
    with pytest.raises(BackendError):
        await store.put(data)
    assert target.read_bytes() == data
    assert len(list(outside.rglob("*"))) == 2
    await store.aclose()


async def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    """A file in place of the root is a backend error that names the place."""
    (tmp_path / "root").write_text("x")
    store = AttachmentStore(tmp_path / "root")
    with pytest.raises(BackendError) as caught:
        await store.put(png())
    assert caught.value.path is not None
    await store.aclose()


async def test_failed_sync_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the bytes cannot be made durable, no file gets the final name and no temporary file stays."""
    store = AttachmentStore(tmp_path)
    await store.put(gif())
    published = files(tmp_path)
    real = os.fsync

    def fail_on_files(handle: int) -> None:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "injected")
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_on_files)
    with pytest.raises(BackendError, match="injected"):
        await store.put(png())
    assert files(tmp_path) == published
    await store.aclose()


async def test_file_and_folder_are_synced_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sync of the file, then one of the folder that names it; a known image syncs the folder again."""
    store = AttachmentStore(tmp_path)
    await store.put(png(4, 4))
    synced: list[str] = []
    real = os.fsync

    def record(handle: int) -> None:
        synced.append("file" if stat.S_ISREG(os.fstat(handle).st_mode) else "folder")
        real(handle)

    monkeypatch.setattr(os, "fsync", record)
    await store.put(png(4, 4))
    assert synced == ["folder"]
    synced.clear()
    (folder,) = (tmp_path / "attachments").iterdir()
    data = next(
        d for n in range(9999) if hashlib.sha256(d := png(padding=n + 1)).hexdigest()[:2] == folder.name
    )
    await store.put(data)
    assert synced == ["file", "folder"]
    await store.aclose()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
async def test_publication_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Where links are not supported the temporary file is renamed."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(code, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    store = AttachmentStore(tmp_path)
    key = (await store.put(png()))["attachment"]["attachmentId"]
    assert await store.get(key) == png()
    assert len(files(tmp_path)) == 1
    await store.aclose()


async def test_other_link_failures_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that fails for another reason is the medium's failure."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", refuse)
    store = AttachmentStore(tmp_path)
    with pytest.raises(BackendError, match="full"):
        await store.put(png())
    assert not files(tmp_path)
    await store.aclose()


async def test_losing_a_race_for_the_same_image_is_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another writer publishes the same bytes first, both have stored them."""
    store = AttachmentStore(tmp_path)
    real = os.link

    def other_first(source: str, name: str, **kwargs: Any) -> None:
        real(source, name, **kwargs)
        real(source, name, **kwargs)

    monkeypatch.setattr(os, "link", other_first)
    key = (await store.put(png()))["attachment"]["attachmentId"]
    assert await store.get(key) == png()
    await store.aclose()


async def test_old_temporary_files_are_removed_by_a_writer(tmp_path: Path) -> None:
    """A dead writer's temporary file goes with the next first write; a young one and other files stay."""
    folder = tmp_path / "attachments"
    folder.mkdir(parents=True)
    old, young, other = folder / "tmp-old", folder / "tmp-young", folder / "notes"
    for file in (old, young, other):
        file.write_text("x")
    hours_ago = time.time() - 7200
    os.utime(old, (hours_ago, hours_ago))
    os.utime(other, (hours_ago, hours_ago))
    store = AttachmentStore(tmp_path)
    assert not await store.exists(f"sha256:{'0' * 64}")
    assert old.exists()
    await store.put(png())
    assert not old.exists()
    assert young.exists()
    assert other.exists()
    await store.put(gif())
    await store.aclose()


async def test_put_all_checks_the_whole_message_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bad image, too many or too big together: nothing of the message is written."""
    store = AttachmentStore(tmp_path)
    with pytest.raises(UsageError):
        await store.put_all([png(), b"no image"])
    with pytest.raises(UsageError, match="21 images"):
        await store.put_all([png()] * 21)
    monkeypatch.setattr(attachments, "MAX_MESSAGE_BYTES", len(png()) * 2)
    with pytest.raises(UsageError, match="of a message have"):
        await store.put_all([png()] * 3)
    assert not files(tmp_path)
    blocks = await store.put_all([png(), gif()])
    assert [b["attachment"]["mediaType"] for b in blocks] == ["image/png", "image/gif"]
    await store.aclose()


async def test_removing_an_image_twice(tmp_path: Path) -> None:
    """The first time tells that it was there, the second time that it was not; nothing is left."""
    store = AttachmentStore(tmp_path)
    block = await store.put(png())
    attachment_id = block["attachment"]["attachmentId"]
    assert await store.remove(attachment_id)
    assert not await store.remove(attachment_id)
    assert not await store.exists(attachment_id)
    assert not files(tmp_path)
    await store.aclose()
