"""Listing a root: every session with a status, whatever state it or its neighbours are in (B4)."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import (
    META,
    OTHER,
    FailingFiles,
    append,
    batch,
    deltas,
    event,
    listed,
    loaded,
    store,
    turn,
)
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.listing import Listing
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader, header_line
from turnlog.persistence.backend import LogSummary, StoredEntry
from turnlog.persistence.claims import this_process


def _log(root: Path, session_id: str = META.id) -> Path:
    return next(root.glob(f"*/{session_id}/session.jsonl*"))


async def _one(backend: JsonlBackend) -> StoredEntry:
    (entry,) = await listed(backend)
    return entry


async def test_nothing_is_listed(backend: JsonlBackend, root: Path) -> None:
    """JL10, JL67, JL82: a missing root, an empty one and a claim without a log have no entries."""
    assert await listed(backend) == []
    root.mkdir()
    assert await listed(backend) == []
    claim = await backend.claim(META.id, this_process(), meta=META)
    assert await listed(backend) == []
    await backend.release(claim)
    assert list(root.glob("*/*")) == []  # B1: a session that was never stored leaves nothing


async def test_an_entry_says_what_a_listing_shows(backend: JsonlBackend, root: Path) -> None:
    """B4: header, status, revision, size, last write and path."""
    await store(backend, EncodedBatch.of(turn(0)))
    entry = await _one(backend)
    status = _log(root).stat()
    assert entry == StoredEntry(
        session_id=META.id,
        meta=replace(META, delegation_depth=0),
        status="ok",
        revision=await backend.read_stored_revision(META.id),
        size=status.st_size,
        last_write=status.st_mtime_ns // 1_000_000,
        summary=None,
        path=str(_log(root)),
    )


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([turn(0)], "ok"),
        ([turn(0), [event(2)]], "ok"),
        ([[event(0)]], "ok"),
        ([], "ok"),
        ([[event(0, "turn/start", turn=1)]], "interrupted"),
        ([turn(0), [event(2, "turn/start", turn=2), event(3)]], "interrupted"),
        ([[event(0, "turn/start", turn=1)], deltas(1, 9)], "interrupted"),
        (
            [
                [event(0, "turn/start", turn=1)],
                *[deltas(n, 200, 40) for n in range(1, 2001, 200)],
                [event(2001)],
            ],
            "interrupted",
        ),
        ([turn(0), [event(2, title=os.urandom(90_000).hex())]], "unknown"),
        ([turn(0), [event(n, title=os.urandom(1_000).hex()) for n in range(2, 90)]], "unknown"),
        ([turn(0), *[[event(n, title=os.urandom(15_000).hex())] for n in range(2, 9)]], "unknown"),
    ],
)
async def test_the_end_tells_the_status(backend: JsonlBackend, parts: list[Any], status: str) -> None:
    """B4: ok, interrupted or unknown, from the last 64 KiB alone."""
    if parts:
        await store(backend, *[EncodedBatch.of(part) for part in parts])
    else:
        await backend.materialize_header(META, claim=None)
    assert (await _one(backend)).status == status


async def test_a_replacement_between_turns_opens_no_turn(backend: JsonlBackend) -> None:
    """B4: a result that replaces an older one after the turn's end does not make the turn open."""
    message = {"id": "m", "role": "user", "source": {"kind": "tool", "callId": "c"}, "content": []}
    pruned = {
        "type": "tool/result",
        "seq": 2,
        "time": 9,
        "data": {"turn": 1, "step": 1, "message": message},
        "surfaceOp": {"op": "replace", "start": 0, "end": 0},
        "sourceEventSeqs": [0],
    }
    from turnlog.events.rows import decode_row

    row = decode_row(json.dumps(pruned, separators=(",", ":")).encode())
    await store(backend, EncodedBatch.of(turn(0)), EncodedBatch(2, 2, [row]))
    assert (await _one(backend)).status == "ok"


async def test_torn_and_corrupt_ends(backend: JsonlBackend, root: Path, compression: str) -> None:
    """B4: a cut last frame or line is torn; a whole frame that cannot be read is corrupt."""
    await store(backend, EncodedBatch.of(turn(0)), batch(2, 2))
    log = _log(root)
    whole = log.read_bytes()
    log.write_bytes(whole[:-2])
    assert (await _one(backend)).status == "torn"
    log.write_bytes(whole + b"null\n")
    entry = await _one(backend)
    assert (entry.status, entry.problem) == ("torn", None)
    if compression == "zstd":
        for bad in (
            whole[:-1] + bytes([whole[-1] ^ 1]),
            whole + frames.compress(b"null\n"),
            whole + frames.compress(b"{}"),
        ):
            log.write_bytes(bad)
            entry = await _one(backend)
            assert entry.status == "corrupt"
            assert "verify" in (entry.problem or "")
        log.write_bytes(whole + frames.compress(b""))
        assert (await _one(backend)).status == "ok"
        log.write_bytes(whole[: frames.scan(whole).spans[0][1]] + frames.compress(b""))
        assert (await _one(backend)).status == "ok"


async def test_the_end_of_a_long_log(backend: JsonlBackend, root: Path, compression: str) -> None:
    """B4: at most the header and 64 KiB are read; tears, damage and garbage at the end are told apart."""
    await store(backend, *[EncodedBatch.of(deltas(n, 200, 40)) for n in range(0, 2000, 200)])
    log = _log(root)
    whole = log.read_bytes()
    backend.files.bytes_read = 0
    assert (await _one(backend)).status == "interrupted"
    assert backend.files.bytes_read <= 8192 + 64 * 1024
    log.write_bytes(whole[:-7])
    assert (await _one(backend)).status == "torn"
    log.write_bytes(whole + b"\x28\xb5\x2f\xfd\x04\x58")
    assert (await _one(backend)).status == "torn"
    if compression == "zstd":
        log.write_bytes(whole + frames.compress(b""))
        assert (await _one(backend)).status == "interrupted"
        log.write_bytes(whole + b"\xff" * 70_000)
        assert (await _one(backend)).status == "unknown"
    else:
        log.write_bytes(whole + b"x\n")
        assert (await _one(backend)).status == "torn"
        log.write_bytes(whole + b"x\n" + batch(2000, 1).text())
        assert (await _one(backend)).status == "unknown"


async def test_one_bad_entry_does_not_hide_the_others(
    backend: JsonlBackend, root: Path, compression: str
) -> None:
    """B4, JL66, JL68–JL77, Z23, Z25–Z26: every kind of bad neighbour is an entry with a problem."""
    await store(backend, EncodedBatch.of(turn(0)))
    project = root / "--srv-app--"
    name = _log(root).name
    other = "session.jsonl" if name.endswith("zstd") else "session.jsonl.zstd"
    line = header_line(OTHER)

    def plant(folder: str, data: bytes, file: str = name) -> None:
        (project / folder).mkdir(exist_ok=True)
        packed = frames.compress(data) if file.endswith("zstd") and data else data
        (project / folder / file).write_bytes(packed)

    plant("a-empty", b"")
    plant("b-no-json", b"hello\n")
    plant("c-no-header", b"5\n")
    plant(
        "d-version-7",
        b'{"type":"session","version":7,"id":"d-version-7","createdAt":1,"delegationDepth":0}\n',
    )
    plant("e-elsewhere", line.replace(b"s-2", b"e-elsewhere").replace(b"/srv/app", b"/x"))
    plant("f-no-id", line.replace(b'"s-2"', b'""'))
    plant("g-both", line.replace(b"s-2", b"g-both"))
    plant("g-both", line.replace(b"s-2", b"g-both"), other)
    plant("h-other", line.replace(b"s-2", b"h-other"), other)
    plant("i~zz", line)
    plant("i~zy", line.replace(b'"s-2"', b'""'))
    plant("j-folder", b"", "notes")
    (project / "k-not-a-log" / name).mkdir(parents=True)
    (project / "l-flat.jsonl").write_bytes(line)
    (project / "m-flat.jsonl.zstd").write_bytes(line)
    (project / "n-link").symlink_to(project / "s-1")
    (project / "README").write_text("mine")
    (root / "o-link").symlink_to(project)
    (root / "stray").write_text("mine")
    (root / ".turnlog").mkdir()
    twice = root / "--q--" / "p-twice"
    twice.mkdir(parents=True)
    plant("p-twice", line.replace(b"s-2", b"p-twice"))
    (twice / name).write_bytes((project / "p-twice" / name).read_bytes())
    (root / "--q--" / "q-flat.jsonl").write_bytes(line)

    found = [(e.session_id, e.status, e.problem and e.problem.split(",")[0]) for e in await listed(backend)]
    assert sorted(found, key=str) == sorted(
        [
            ("s-1", "ok", None),
            ("a-empty", "corrupt", "the log is empty or has no header line"),
            ("b-no-json", "corrupt", found_problem(found, "b-no-json", "not valid JSON")),
            ("c-no-header", "corrupt", found_problem(found, "c-no-header", "not a session header")),
            ("d-version-7", "unsupported", found_problem(found, "d-version-7", "format version")),
            ("e-elsewhere", "corrupt", found_problem(found, "e-elsewhere", "--x--")),
            ("f-no-id", "corrupt", found_problem(found, "f-no-id", "another session")),
            ("g-both", "corrupt", "stored in both encodings; move one of the logs away"),
            ("h-other", "ok", None),
            (None, "corrupt", "the header's id and working directory lead to --srv-app--/s-2"),
            (None, "corrupt", "the header's id cannot name a session: it is empty"),
            ("k-not-a-log", "corrupt", "the log is not a file"),
            ("l-flat", "unsupported", "a log without a folder"),
            ("m-flat", "unsupported", "a log without a folder"),
            ("q-flat", "unsupported", "a log without a folder"),
            (None, "unknown", "a symbolic link"),
            (None, "unknown", "a symbolic link"),
            ("p-twice", "corrupt", "the id is stored in two projects; move one of the folders away"),
            ("p-twice", "corrupt", found_problem(found, "p-twice", "")),
        ],
        key=str,
    )


def found_problem(found: list[Any], session_id: str, part: str) -> str | None:
    """Return an entry's problem after checking that it contains some words."""
    problem = [problem for id_, _, problem in found if id_ == session_id][-1]
    assert part in (problem or ""), (session_id, problem)
    return problem  # type: ignore[no-any-return]  # rows of the list above


async def test_folders_that_cannot_be_read(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """B4: a project or session folder that fails is an entry; a root that fails is an error (JL22, JL85)."""
    backend = make(files)
    await store(backend, EncodedBatch.of(turn(0)))
    await store(backend, EncodedBatch.of(turn(0)), meta=replace(OTHER, cwd="/x"))
    files.fail("open_folder", skip=1)
    found = await listed(backend)
    assert (found[0].session_id, found[0].status, found[0].meta) == (None, "unknown", None)
    assert "project folder cannot be read" in (found[0].problem or "")
    assert len(found) == 2
    files.stop("path_status", lambda: files.fail("path_status"))
    found = await listed(backend)
    assert sorted(e.status for e in found) == ["ok", "unknown"]
    files.fail("open_folder", skip=1, number=2)  # removed meanwhile
    assert len(await listed(backend)) == 1
    files.fail("open_folder")
    with pytest.raises(Exception, match="Input/output error"):
        await listed(backend)


async def test_a_session_deleted_during_the_listing(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """JL21: a session that vanishes between the walk and its turn is left out."""
    backend = make(files)
    await store(backend, EncodedBatch.of(turn(0)))
    files.stop("open", _log(root).unlink)
    assert await listed(backend) == []


async def test_pages_follow_each_other(backend: JsonlBackend) -> None:
    """B4: pages in a stable order by segment, whatever the projects; `after` is exclusive."""
    ids = [f"p-{n:03}" for n in range(7)]
    for number, session_id in enumerate(ids):
        meta = SessionHeader(id=session_id, created_at=1, cwd=f"/w{number % 3}")
        await store(backend, batch(0, 1), meta=meta)
    got: list[str | None] = []
    after: str | None = None
    while page := [entry async for entry in backend.list(after, 3)]:
        got += [entry.session_id for entry in page]
        after = got[-1]
    assert got == ids
    assert [entry async for entry in backend.list(None, 0)] == []


async def test_what_did_not_change_is_not_opened_again(make: OpenBackend, root: Path) -> None:
    """A second listing opens only the logs that were written since; the memory is bounded."""
    backend = make()
    for number in range(5):
        meta = SessionHeader(id=f"p-{number}", created_at=1, cwd="/w")
        await store(backend, EncodedBatch.of(turn(0)), meta=meta)
    await listed(backend)
    assert backend.listing.logs_opened == 5
    await listed(backend)
    assert backend.listing.logs_opened == 5
    await append(backend, EncodedBatch.of([event(2, "turn/start", turn=2)]), None, meta=meta)
    statuses = [entry.status for entry in await listed(backend)]
    assert statuses == ["ok"] * 4 + ["interrupted"]
    assert backend.listing.logs_opened == 6


async def test_the_memories_are_bounded(make: OpenBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What listings and look-ups remember has an upper bound, and so have the open project folders."""
    from turnlog.backends.jsonl import discovery, listing

    monkeypatch.setattr(listing, "_CACHED", 2)
    monkeypatch.setattr(listing, "_FOLDERS_OPEN", 2)
    monkeypatch.setattr(discovery, "_REMEMBERED", 2)
    backend = make()
    for number in range(5):
        meta = SessionHeader(id=f"p-{number}", created_at=1, cwd=f"/w{number}")
        await store(backend, EncodedBatch.of(turn(0)), meta=meta)
    assert len(await listed(backend)) == 5
    assert len(backend.listing._known) <= 2
    assert len(backend.discovery._known) <= 2


def _facts(**changes: Any) -> bytes:
    mine = this_process()
    facts = {
        "pid": mine.pid,
        "host": mine.host,
        "since": mine.since,
        "boot_id": mine.boot_id,
        "start_time": mine.start_time,
        "pid_namespace": mine.pid_namespace,
    }
    return json.dumps(facts | changes).encode()


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (_facts(), "live"),
        (_facts(pid=2**22 + 1), "ok"),
        (_facts(start_time=1), "ok"),
        (_facts(boot_id="another boot"), "ok"),
        (_facts(host="another-host"), "unknown"),
        (_facts(pid_namespace="pid:[1]"), "unknown"),
        (b"", "ok"),
        (b"not json", "ok"),
        (b"[]", "ok"),
        (b'{"pid":"x"}', "ok"),
    ],
)
async def test_live_comes_from_the_facts_in_the_lock(
    backend: JsonlBackend, root: Path, facts: bytes, status: str
) -> None:
    """B4, W1: a reader judges the owner's facts by the process table and never touches the lock."""
    await store(backend, EncodedBatch.of(turn(0)))
    (_log(root).parent / "session.lock").write_bytes(facts)
    entry = await _one(backend)
    assert entry.status == status
    if status == "unknown":
        assert "out of sight" in (entry.problem or "")


async def test_a_lock_that_cannot_be_read_says_nothing(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """B4: an unreadable lock is no owner."""
    backend = make(files)
    await store(backend, EncodedBatch.of(turn(0)))
    lock = _log(root).parent / "session.lock"
    lock.write_bytes(_facts())
    files.fail("open", skip=2)  # the log, the summary, then the lock
    assert (await _one(backend)).status == "ok"


async def test_a_held_claim_is_live(make: OpenBackend) -> None:
    """B4: a session is live while its claim is held, and not any more afterwards."""
    a, b = make(), make()
    claim = await store(a, EncodedBatch.of(turn(0)), keep=True)
    assert (await _one(b)).status == "live"
    await a.release(claim)
    assert (await _one(b)).status == "ok"


SUMMARY = LogSummary(turns=1, steps=0, title="t", last_time=5, open_turn=None)


async def test_the_summary_is_written_at_each_turn_end(backend: JsonlBackend, root: Path) -> None:
    """B4: once per turn end, and at the retirement; a listing shows it only for its own revision."""
    claim = await backend.claim(META.id, this_process(), meta=META)

    async def write(part: EncodedBatch, summary: LogSummary | None, new: bool = False) -> None:
        await backend.append_batch(META, part, is_materialized=not new, claim=claim, summary=summary)

    path = root / "--srv-app--" / "s-1" / "summary.json"
    await write(
        EncodedBatch.of([event(0, "turn/start", turn=1)]), structs.replace(SUMMARY, open_turn=1), new=True
    )
    assert not path.exists()
    await write(EncodedBatch.of([event(1, "turn/end", turn=1, reason={"kind": "completed"})]), SUMMARY)
    assert (await _one(backend)).summary == SUMMARY
    written = path.read_bytes()
    await write(batch(2, 1), structs.replace(SUMMARY, title="title 2"))  # no turn has ended since
    assert path.read_bytes() == written
    assert (await _one(backend)).summary is None
    await backend.release(claim)
    assert (await _one(backend)).summary == structs.replace(SUMMARY, title="title 2")
    await append(backend, batch(3, 1), None)
    assert (await _one(backend)).summary is None
    for text in (b"{}", b"", b"\xff"):
        path.write_bytes(text)
        assert (await _one(backend)).summary is None


async def test_what_a_writer_left_need_not_be_read_again(make: OpenBackend, root: Path) -> None:
    """B4: while nothing has touched a log since, its header and end are taken from the stamped summary."""
    backend = make()
    claim = await backend.claim(META.id, this_process(), meta=META)
    for part, open_turn, status in (
        (EncodedBatch.of([event(0, "turn/start", turn=1)]), 1, "interrupted"),
        (EncodedBatch.of([event(1, "turn/end", turn=1, reason={"kind": "completed"})]), None, "ok"),
    ):
        summary = structs.replace(SUMMARY, open_turn=open_turn)
        await backend.append_batch(
            META, part, is_materialized=part.first_seq > 0, claim=claim, summary=summary
        )
        await backend.release(claim)
        other = make()
        entry = await _one(other)
        assert (entry.status, entry.meta, other.listing.logs_opened) == (
            status,
            replace(META, delegation_depth=0),
            0,
        )
        claim = await backend.claim(META.id, this_process())
    await backend.release(claim)


@pytest.mark.parametrize(
    "header", [b"{}", b"5", header_line(OTHER)[:-1], header_line(META).replace(b"/srv/app", b"/else")[:-1]]
)
async def test_a_summary_that_is_not_the_logs_own(make: OpenBackend, root: Path, header: bytes) -> None:
    """B4: a stamp that fits does not make a foreign header right; the log is looked at."""
    backend = make()
    await store(backend, EncodedBatch.of(turn(0)))
    revision = (await loaded(backend)).revision
    text = b'{"revision":"%s","summary":{},"header":%s}' % ((revision or "").encode(), header)
    (root / "--srv-app--" / "s-1" / "summary.json").write_bytes(text)
    other = make()
    entry = await _one(other)
    assert (entry.status, entry.session_id, other.listing.logs_opened) == ("ok", "s-1", 1)


async def test_a_summary_that_cannot_be_written_is_no_error(make: OpenBackend, files: FailingFiles) -> None:
    """B4: nothing depends on the summary; a title that the file cannot hold or a full disk leaves blanks."""
    backend = make(files)
    claim = await store(backend, batch(0, 1), keep=True)
    for summary in (SUMMARY, structs.replace(SUMMARY, turns=2, title="\ud800")):
        part = batch((await loaded(backend)).events.next_seq, 1)
        files.fail("open", number=28)
        await backend.append_batch(META, part, is_materialized=True, claim=claim, summary=summary)
        files.rules.clear()
    assert (await _one(backend)).summary is None


def test_items_are_sorted_with_what_has_no_segment_first(tmp_path: Path, backend: JsonlBackend) -> None:
    """B4: the order of a listing does not depend on the order of the folders."""
    root = tmp_path / "root"
    for folder in ("--b--/x", "--a--/y", "--a--/x", ".turnlog/z"):
        (root / folder).mkdir(parents=True)
    (root / "--a--" / "w").symlink_to(root)
    items = Listing(backend.files, backend.reader, str(root)).items()
    assert [(item.key, item.project) for item in items] == [
        ("", "--a--"),
        ("x", "--a--"),
        ("x", "--b--"),
        ("y", "--a--"),
    ]
    assert socket.gethostname()


async def test_a_log_in_another_sessions_folder(backend: JsonlBackend, root: Path) -> None:
    """B4: an entry has the id of its folder: a header of another session makes no second one of that."""
    await store(backend, EncodedBatch.of(turn(0)))
    home = _log(root)
    for folder in ("a-copy", "i~zz"):  # the latter is the folder of no id at all
        (home.parent.parent / folder).mkdir()
        (home.parent.parent / folder / home.name).write_bytes(home.read_bytes())
    found = [(entry.session_id, entry.status) for entry in await listed(backend)]
    assert found == [("a-copy", "corrupt"), (None, "corrupt"), (META.id, "ok")]


async def test_zeros_at_the_end(backend: JsonlBackend, root: Path) -> None:
    """R2: what a power cut leaves behind a log is an unfinished write, in a listing as in a load."""
    await store(backend, EncodedBatch.of(turn(0)))
    log = _log(root)
    whole = log.read_bytes()
    for size in (1, 3, 4096):
        log.write_bytes(whole + bytes(size))
        assert (await loaded(backend)).torn_marker is not None
        assert (await _one(backend)).status == "torn"
