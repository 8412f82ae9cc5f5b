"""Bundles: what goes in comes out, everything is checked, nothing in a bundle is trusted."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import turnlog
from turnlog.errors import CorruptLogError, SessionNotFoundError, UnsupportedFormatError, UsageError
from turnlog.testing.scripts import LogScript, append_live
from turnlog.transcripts import Bundled, Redactor, unpack_bundle, write_bundle

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\2\0\0\0\2\x08\2\0\0\0" + b"\0" * 8


async def fill(store: turnlog.SessionStore) -> None:
    """Store a session with an image, a child, a grandchild, a fork and a stranger."""
    async with store.create(id="top", cwd="/srv/app") as session:
        block = await store.attachments.put(PNG)
        missing = {
            "type": "image",
            "attachment": {**block["attachment"], "attachmentId": "sha256:" + "0" * 64},
        }
        script = LogScript().start().step()
        message = {"content": [block, missing], "source": {"kind": "user"}, "role": "user", "id": "u"}
        script.add("user/message", message, surfaceOp="append").chunks("a ", "b ", "c ", "d ")
        script.assistant("done", calls=["c"]).call("c").result("c").end_step().end()
        append_live(session, script.events)
    for name, parent, origin in (
        ("child", "top", "subagent"),
        ("grandchild", "child", "subagent"),
        ("fork", "top", None),
        ("stranger", None, None),
    ):
        async with store.create(id=name, parent_session=parent, origin=origin) as session:
            append_live(session, LogScript().turn().events)


async def bundled(url: str, path: Path, **options: Any) -> Bundled:
    """Write a bundle of a filled store."""
    async with turnlog.open(url) as store:
        await fill(store)
        return await write_bundle(store, "top", path, **options)


@pytest.mark.parametrize("url", ["memory:", "jsonl:{}?compression=none", "jsonl:{}?compression=zstd"])
async def test_what_goes_in_comes_out(url: str, tmp_path: Path) -> None:
    """A session, its sub-agents and its images are in another store after a round trip, event for event."""
    async with turnlog.open(url.format(tmp_path / "store")) as store:
        await fill(store)
        made = await write_bundle(store, "top", tmp_path / "b.zip")
        assert [entry["id"] for entry in made.sessions] == ["top", "child", "grandchild"]
        assert made.missing == ["sha256:" + "0" * 64]
        root = tmp_path / "root"
        root.mkdir()
        unpacked = unpack_bundle(tmp_path / "b.zip", root)
        assert unpacked.session_ids == ("top", "child", "grandchild")
        async with turnlog.open(f"jsonl:{root}") as other:
            for name in unpacked.session_ids:
                before, after = await store.read_from(name, 0), await other.read_from(name, 0)
                assert before.meta == after.meta
                assert before.events == after.events
            assert await other.attachments.get(made.attachments[0]["id"]) == PNG


async def test_equal_sessions_give_equal_bundles(tmp_path: Path) -> None:
    """A bundle holds no time, name or order of its own; written to an open file it is the same."""
    async with turnlog.open("memory:") as store:
        await fill(store)
        await write_bundle(store, "top", tmp_path / "a.zip")
        again = io.BytesIO()
        await write_bundle(store, "top", again)
    assert again.getvalue() == (tmp_path / "a.zip").read_bytes()


async def test_plain_logs_are_in_it_byte_for_byte(tmp_path: Path) -> None:
    """The log in a bundle of a plain root is the file, so a bundle can be read with common tools."""
    root = tmp_path / "store"
    made = await bundled(f"jsonl:{root}?compression=none", tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        for entry in made.sessions:
            assert archive.read(entry["path"]) == (root / entry["path"]).read_bytes()


async def test_redacted_bundle_is_for_reading_only(tmp_path: Path) -> None:
    """With secrets marked a bundle has no images, and is not taken back."""
    made = await bundled("memory:", tmp_path / "b.zip", redactor=Redactor())
    assert made.attachments == []
    with pytest.raises(UsageError, match="secrets marked"):
        unpack_bundle(tmp_path / "b.zip", tmp_path)


async def test_unknown_session_is_named(tmp_path: Path) -> None:
    """A session that is not there gives the store's own error."""
    async with turnlog.open("memory:") as store:
        with pytest.raises(SessionNotFoundError):
            await write_bundle(store, "none", tmp_path / "b.zip")


def rewritten(path: Path, change: Any) -> Path:
    """Write a bundle again with its files changed; `change` gets them by name and the manifest."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    change(files, manifest)
    other = path.with_name("other.zip")
    with zipfile.ZipFile(other, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        if manifest is not None:
            archive.writestr("manifest.json", json.dumps(manifest))
    return other


def _digest(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    path = manifest["sessions"][0]["path"]
    files[path] = files[path].replace(b"done", b"gone")


def _moved(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    entry = manifest["sessions"][0]
    files["../../evil.jsonl"] = files.pop(entry["path"])
    entry["path"] = "../../evil.jsonl"


def _renamed(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["sessions"][0]["id"] = "other"


def _lost(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    del files[manifest["sessions"][1]["path"]]


def _wrong_image(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["attachments"][0]["id"] = "sha256:" + "1" * 64


def _listless(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    manifest["attachments"] = {"a": 1}


def _headless(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    import hashlib

    entry = manifest["sessions"][0]
    files[entry["path"]] = b"no log\n"
    entry["sha256"] = hashlib.sha256(b"no log\n").hexdigest()


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (_digest, CorruptLogError, "not what its digest says"),
        (_renamed, CorruptLogError, "another session"),
        (_lost, CorruptLogError, "missing"),
        (_wrong_image, CorruptLogError, "digest that is its name"),
        (_listless, CorruptLogError, "no list of attachments"),
        (_headless, CorruptLogError, "header line is not valid JSON"),
        (lambda files, manifest: manifest.update(version=2), UnsupportedFormatError, "2"),
        (lambda files, manifest: manifest.update(format="zip"), UsageError, "not a bundle of turnlog"),
        (lambda files, manifest: manifest.update(redacted=None), UsageError, "secrets marked"),
    ],
)
async def test_wrong_bundles_are_refused(
    change: Any, error: type[Exception], says: str, tmp_path: Path
) -> None:
    """Each way in which a bundle can be wrong is one clear error."""
    await bundled("memory:", tmp_path / "b.zip")
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(error, match=says):
        unpack_bundle(rewritten(tmp_path / "b.zip", change), root)


async def test_paths_of_a_bundle_are_never_used(tmp_path: Path) -> None:
    """A path that leads out of the folder changes nothing: files lie where their own headers say."""
    await bundled("memory:", tmp_path / "b.zip")
    root = tmp_path / "a" / "b" / "root"
    root.mkdir(parents=True)
    unpack_bundle(rewritten(tmp_path / "b.zip", _moved), root)
    assert not list(tmp_path.rglob("evil*"))
    assert len(list(root.rglob("session.jsonl"))) == 3
    assert {path.stat().st_mode & 0o777 for path in root.rglob("session.jsonl")} == {0o600}


async def test_bounds_and_broken_files(tmp_path: Path) -> None:
    """A bundle that unpacks to too much, a file that is no zip, and a cut one are refused."""
    await bundled("memory:", tmp_path / "b.zip")
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(UsageError, match="more bytes than are allowed"):
        unpack_bundle(tmp_path / "b.zip", root, max_bytes=100)
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("manifest.json", "{")
    with pytest.raises(UsageError, match="no readable manifest"):
        unpack_bundle(tmp_path / "odd.zip", root)
    (tmp_path / "no.zip").write_bytes(b"PK nothing")
    with pytest.raises(UsageError, match="not a bundle"):
        unpack_bundle(tmp_path / "no.zip", root)
    data = bytearray((tmp_path / "b.zip").read_bytes())
    data[200:260] = b"\xff" * 60
    (tmp_path / "bad.zip").write_bytes(data)
    other = tmp_path / "root2"
    other.mkdir()
    with pytest.raises(CorruptLogError):
        unpack_bundle(tmp_path / "bad.zip", other)
    with pytest.raises(FileNotFoundError):
        unpack_bundle(tmp_path / "none.zip", other)
