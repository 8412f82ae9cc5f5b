"""Reading a bundle back: every digest checked, every path made anew, nothing trusted.

Owns the way from the zip file to a root of plain logs in a folder. Putting those into a store is copying from
one store to another, which is not done here.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from turnlog.errors import CorruptLogError, UnsupportedFormatError, UsageError
from turnlog.events.header import parse_header_line
from turnlog.events.segment import encode_segment, project_key
from turnlog.persistence.attachment_files import AttachmentFiles
from turnlog.persistence.attachments import MAX_IMAGE_BYTES
from turnlog.transcripts.bundle import FORMAT, MANIFEST, VERSION

MAX_BYTES: Final = 64 << 30
"""Bytes of everything in a bundle together; a bundle that unpacks to more is refused."""

OWN_FOLDER: Final = ".turnlog"
"""Folder of a root in which turnlog keeps what is its own, such as images."""

_MAX_MANIFEST = 64 << 20
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came out of a bundle."""

    session_ids: tuple[str, ...]
    """The sessions, the bundle's own first."""
    attachments: int
    missing: tuple[str, ...]
    """Ids of images that were not there when the bundle was made."""


def unpack_bundle(
    bundle: str | os.PathLike[str], root: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES
) -> Unpacked:
    """Unpack a bundle into a folder that can be opened as `jsonl:FOLDER`.

    Args:
        bundle: The file.
        root: An existing, empty folder.
        max_bytes: Most bytes to unpack.

    Returns:
        What came out.

    Raises:
        UsageError: The file is no bundle, is too big, or has its secrets marked.
        UnsupportedFormatError: A bundle of a newer version.
        CorruptLogError: An entry is missing, is not what its digest says, or is not where it belongs.
        OSError: A file cannot be read or written.
    """
    path = os.fspath(bundle)
    with _opened(path) as archive:
        manifest = _manifest(archive, path)
        budget = [max_bytes]
        sessions = tuple(
            _unpack_session(archive, entry, Path(root), path, budget) for entry in manifest["sessions"]
        )
        images = AttachmentFiles(Path(root) / OWN_FOLDER, MAX_IMAGE_BYTES)
        for entry in manifest["attachments"]:
            _unpack_attachment(archive, entry, images, path, budget)
    return Unpacked(sessions, len(manifest["attachments"]), tuple(manifest["missing_attachments"]))


@contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise UsageError(f"{path!r} is not a bundle: {error}") from None
    except (zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        # What the zip module raises for data that is cut, encrypted or packed in a way it does not know.
        raise _corrupt(path, f"an entry cannot be read: {error}") from error


def _corrupt(path: str, reason: str, session_id: str | None = None) -> CorruptLogError:
    return CorruptLogError(session_id=session_id, reason=reason, kind="bundle", path=path)


def _manifest(archive: zipfile.ZipFile, path: str) -> dict[str, Any]:
    try:
        with archive.open(MANIFEST) as file:
            found = json.loads(file.read(_MAX_MANIFEST))
    except (KeyError, ValueError, RecursionError):
        raise UsageError(f"{path!r} is not a bundle: it has no readable {MANIFEST}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise UsageError(f"{path!r} is not a bundle of turnlog")
    if found.get("version") != VERSION:
        raise UnsupportedFormatError(
            session_id=None, found=found.get("version"), supported=VERSION, direction="newer", path=path
        )
    if found.get("redacted") is not False:
        raise UsageError(
            f"{path!r} has its secrets marked: it is for reading and cannot become a session again"
        )
    for key, kind in (("sessions", dict), ("attachments", dict), ("missing_attachments", str)):
        listed = found.get(key)
        if not isinstance(listed, list) or not all(isinstance(item, kind) for item in listed):
            raise _corrupt(path, f"its manifest has no list of {key}")
    return found


def _unpack_session(
    archive: zipfile.ZipFile, entry: dict[str, Any], root: Path, bundle: str, budget: list[int]
) -> str:
    with _checked(archive, entry, bundle, budget) as pieces:
        first = next(pieces, b"")
        end = first.find(b"\n") + 1
        # The header line is far smaller than a piece, or it is none.
        header = parse_header_line(first[:end], path=bundle)
        if entry.get("id") != header.id:
            raise _corrupt(bundle, "its manifest names another session than the log itself", header.id)
        # The path is made of the log's own header: the one in the archive is never used on a file system.
        folder = root / project_key(header.cwd) / encode_segment(header.id)
        folder.mkdir(mode=0o700, parents=True)
        descriptor = os.open(folder / "session.jsonl", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as out:
            out.write(first)
            for piece in pieces:
                out.write(piece)
    return header.id


def _unpack_attachment(
    archive: zipfile.ZipFile, entry: dict[str, Any], images: AttachmentFiles, bundle: str, budget: list[int]
) -> None:
    with _checked(archive, entry, bundle, budget) as pieces:
        data = bytearray()
        for piece in pieces:
            data += piece
            if len(data) > MAX_IMAGE_BYTES:
                raise _corrupt(bundle, f"an image has more than {MAX_IMAGE_BYTES} bytes")
    digest = hashlib.sha256(data).hexdigest()
    if entry.get("id") != f"sha256:{digest}":
        raise _corrupt(bundle, f"image {entry.get('id')!r} does not have the digest that is its name")
    images.write(digest, bytes(data))


@contextmanager
def _checked(
    archive: zipfile.ZipFile, entry: dict[str, Any], bundle: str, budget: list[int]
) -> Iterator[Iterator[bytes]]:
    """Read an entry in pieces; leaving the block checks that all of it had the stated digest."""
    name = entry.get("path")
    try:
        info = archive.getinfo(name) if isinstance(name, str) else None
    except KeyError:
        info = None
    if info is None:
        raise _corrupt(bundle, f"entry {name!r} of its manifest is missing")
    digest = hashlib.sha256()
    with archive.open(info) as file:
        yield _pieces(file, digest, bundle, budget)
    if digest.hexdigest() != entry.get("sha256"):
        raise _corrupt(bundle, f"entry {name!r} is not what its digest says")


def _pieces(file: IO[bytes], digest: Any, bundle: str, budget: list[int]) -> Iterator[bytes]:
    try:
        while piece := file.read(_PIECE):
            budget[0] -= len(piece)
            if budget[0] < 0:
                raise UsageError(
                    f"{bundle!r} unpacks to more bytes than are allowed; raise the limit to read it"
                )
            digest.update(piece)
            yield piece
    except zipfile.BadZipFile as error:
        raise _corrupt(bundle, f"an entry cannot be read: {error}") from error
