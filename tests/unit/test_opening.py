"""`turnlog.open`: the grammar of store URLs, the schemes, the options, and what a typing mistake is told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import turnlog
from turnlog.errors import BackendError, UsageError
from turnlog.opening import StoreURL, parse_store_url
from turnlog.persistence.store import SessionStore


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory:", ("memory", "", {})),
        ("JSONL:/a/b", ("jsonl", "/a/b", {})),
        ("jsonl:~/x", ("jsonl", "~/x", {})),
        ("jsonl:/a?", ("jsonl", "/a", {})),
        ("jsonl:/a?compression=none", ("jsonl", "/a", {"compression": "none"})),
        ("jsonl:/a?compression=zstd&mixed=1", ("jsonl", "/a", {"compression": "zstd", "mixed": "1"})),
        ("jsonl:/100%/a b?x=%26", ("jsonl", "/100%/a b", {"x": "&"})),
        ("x-y+z://host/db?q=", ("x-y+z", "//host/db", {"q": ""})),
    ],
)
def test_urls_are_taken_apart(url: str, expected: tuple[str, str, dict[str, str]]) -> None:
    """Scheme before the first colon, options behind the first question mark, the place as written."""
    parsed = parse_store_url(url)
    assert (parsed.scheme, parsed.location, parsed.parameters) == expected
    assert parsed.text == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "sessions",
        "/var/sessions",
        "./a:b",
        "~/sessions",
        ":x",
        "jsonl:/a?compression",
        "jsonl:/a?compression=none&compression=zstd",
        "jsonl:/a?mixed=1&mixed=1",
        "jsonl:/a?x=%ff",
    ],
)
def test_what_is_no_url(url: str) -> None:
    """A path without a scheme, options without values, options twice: refused at once."""
    with pytest.raises(UsageError):
        turnlog.open(url)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("nosuch:/a", "jsonl, memory"),
        ("C:\\sessions", "known schemes are"),
        ("memory:here", "write memory:"),
        ("memory:?size=1", "it takes none"),
        ("jsonl:", "write jsonl:PATH"),
        ("jsonl:?compression=none", "names no folder"),
        ("jsonl:/a\0b", "NUL"),
        ("jsonl:/a?compression=gzip", "one of none, zstd"),
        ("jsonl:/a?mixed=yes", "one of 0, 1"),
        ("jsonl:/a?compresion=none", "it takes compression, mixed"),
        ("jsonl:~nobody-has-this-name/x", "home folder"),
    ],
)
async def test_urls_that_cannot_be_right(url: str, told: str) -> None:
    """Each mistake is a usage error that says what to write instead; nothing is made."""
    with pytest.raises(UsageError, match=told):
        await turnlog.open(url)


@pytest.mark.parametrize(
    "options",
    [
        {"window": 1},
        {"write_window": -1.0},
        {"write_window": float("nan")},
        {"pending_budget": 0},
        {"pending_reserve": "1"},
        {"prepared_sessions": 0},
        {"prepared_bytes": -1},
    ],
)
async def test_options_that_cannot_be_right(options: dict[str, Any]) -> None:
    """Unknown options and values out of range are usage errors that name the option."""
    with pytest.raises(UsageError, match=next(iter(options))):
        await turnlog.open("memory:", **options)


def test_paths_are_absolute_and_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` and relative places are resolved once, when the store is opened; symlinks are left alone."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for location, expected in (
        ("~/.turnlog", tmp_path / "home" / ".turnlog"),
        ("a/../b", tmp_path / "b"),
        ("link/x", tmp_path / "link" / "x"),
        ("/abs", Path("/abs")),
    ):
        assert StoreURL("jsonl", location).path() == expected


async def test_a_store_is_entered_or_awaited(tmp_path: Path) -> None:
    """Both ways give a working store, and an opening opens once."""
    async with turnlog.open(f"jsonl:{tmp_path}/a") as store, store.create() as session:
        session.append("feedback/record", {"text": "x"})
    opening = turnlog.open(f"jsonl:{tmp_path}/a", write_window=0.0)
    again = await opening
    assert isinstance(again, SessionStore)
    assert [event.type async for event in again.iter_events(session.id)] == ["feedback/record"]
    with pytest.raises(UsageError, match=r"turnlog\.open"):
        await opening
    await again.aclose()


async def test_opening_touches_nothing(tmp_path: Path) -> None:
    """An absent root is made by the first write, not by opening, listing or looking."""
    async with turnlog.open(f"jsonl:{tmp_path}/absent") as store:
        assert [info async for info in store.list()] == []
        with pytest.raises(turnlog.SessionNotFoundError):
            await store.inspect("nobody")
    assert os.listdir(tmp_path) == []


async def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    """A file in place of the root is a backend error that names it."""
    (tmp_path / "root").write_text("x")
    with pytest.raises(BackendError, match="root"):
        await turnlog.open(f"jsonl:{tmp_path}/root")


@pytest.mark.parametrize(("first", "second"), [("none", "zstd"), ("zstd", "none")])
async def test_encoding_of_a_root(tmp_path: Path, first: str, second: str) -> None:
    """A root keeps its encoding; the other one is refused unless mixing is asked for."""
    url = f"jsonl:{tmp_path}/root"
    async with turnlog.open(f"{url}?compression={first}") as store, store.create() as session:
        session.append("feedback/record", {"text": "x"})
    with pytest.raises(UsageError, match=first):
        await turnlog.open(f"{url}?compression={second}")
    async with turnlog.open(url) as store, store.create() as session:
        session.append("feedback/record", {"text": "x"})
    names = {path.name for path in (tmp_path / "root").rglob("session.jsonl*")}
    assert names == {"session.jsonl" if first == "none" else "session.jsonl.zstd"}
    async with turnlog.open(f"{url}?compression={second}&mixed=1") as store, store.create() as session:
        session.append("feedback/record", {"text": "x"})
    names = {path.name for path in (tmp_path / "root").rglob("session.jsonl*")}
    assert names == {"session.jsonl", "session.jsonl.zstd"}


async def test_attachments_live_beside_the_logs(tmp_path: Path) -> None:
    """A JSONL root keeps images in its own folder, a memory store in memory."""
    image = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"
    kept = []  # a store that is gone takes its threads along, so that the check below would say nothing
    for url in (f"jsonl:{tmp_path}/root", "memory:"):
        async with turnlog.open(url) as store:
            kept.append(store)
            block = await store.attachments.put(image, "image/gif")
            assert await store.attachments.get(block["attachment"]["attachmentId"]) == image
            assert [info async for info in store.list()] == []
    assert not [thread for thread in threading.enumerate() if "attachments" in thread.name]
    (stored,) = (path for path in (tmp_path / "root").rglob("*") if path.is_file())
    assert stored.relative_to(tmp_path / "root").parts[:2] == (".turnlog", "attachments")


BACKEND = """
from turnlog.backends.memory import MemoryBackend
from turnlog.errors import UsageError
from turnlog.opening import OpenedBackend

def make(url):
    url.accept("shards")
    if url.choice("shards", "1", "2") is None:
        raise UsageError("shards=1 or shards=2 is needed")
    backend = MemoryBackend()
    backend.name = f"acme {url.location}"
    return OpenedBackend(backend)
"""


async def test_other_packages_add_schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that registers an entry point serves its scheme, with its own options."""
    (tmp_path / "acme_backend.py").write_text(BACKEND)
    info = tmp_path / "acme_backend-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-backend\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[turnlog.backends]\nacme = acme_backend:make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with turnlog.open("acme://host/db?shards=2") as store:
        assert store._coordinator.label == "acme //host/db"
        async with store.create() as session:
            session.append("feedback/record", {"text": "x"})
    for url, told in (
        ("acme:x?shard=1", "takes shards"),
        ("acme:x?shards=3", "one of 1, 2"),
        ("acme:x", "needed"),
        ("nosuch:x", "acme, jsonl, memory"),
    ):
        with pytest.raises(UsageError, match=told):
            await turnlog.open(url)


def test_a_backend_is_imported_with_its_scheme() -> None:
    """Opening a memory store loads no other backend."""
    script = """
import asyncio, sys, turnlog
async def main():
    async with turnlog.open("memory:"):
        pass
asyncio.run(main())
print(any(name.startswith("turnlog.backends.jsonl") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
