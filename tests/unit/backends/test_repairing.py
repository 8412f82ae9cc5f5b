"""Committing a repair: quarantine, cut, one batch; after any crash in between, the same repair again (L1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.backends.conftest import OpenBackend
from tests.unit.backends.logs import (
    META,
    FailingFiles,
    append,
    batch,
    deltas,
    event,
    events,
    loaded,
    store,
    turn,
)
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.tear import JsonlTear
from turnlog.errors import BackendError, UnexpectedSeqError
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.envelope import SessionEvent

BLOCKS = EncodedBatch.of(
    [event(2, "turn/start", turn=1), *[event(n, title="x" * 50 + str(n)) for n in range(3, 7)]]
)


def _log(root: Path) -> Path:
    return next(root.glob("*/*/session.jsonl*"))


def _kept(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.glob("*/*/torn-*.bin")}


async def _torn(backend: JsonlBackend, root: Path, drop: int = 1) -> bytes:
    """Store two events and tear a following batch of five; return the torn bytes."""
    await store(backend, batch(0, 2))
    log = _log(root)
    whole = BLOCKS.frame() if log.name.endswith("zstd") else BLOCKS.text()
    torn = whole[:-drop]
    log.write_bytes(log.read_bytes() + torn)
    return torn


async def _repair(backend: JsonlBackend, closers: Sequence[SessionEvent]) -> None:
    await backend.commit_repair(META, (await loaded(backend)).torn_marker, closers, claim=None)


def _closer(seq: int) -> SessionEvent:
    return event(seq, "turn/end", turn=1, reason={"kind": "interrupted"})


async def test_a_repair_keeps_cuts_and_appends_once(
    backend: JsonlBackend, root: Path, compression: str
) -> None:
    """L1, Z18, Z20: torn bytes are kept; what they gave back and the closers become one batch."""
    torn = await _torn(backend, root)
    before = _log(root).read_bytes()[: -len(torn)]
    found = await loaded(backend)
    recovered = 5 if compression == "zstd" else 4
    assert found.events.next_seq == 2 + recovered
    assert isinstance(found.torn_marker, JsonlTear)
    assert found.torn_marker.recovered_events == (5 if compression == "zstd" else 0)
    await _repair(backend, [_closer(2 + recovered)])

    log = _log(root).read_bytes()
    assert log.startswith(before)
    after = await loaded(backend)
    assert after.torn_marker is None
    assert after.events.next_seq == 3 + recovered
    assert list(after.events)[: 2 + recovered] == list(found.events)
    if compression == "zstd":
        assert _kept(root) == {f"torn-{len(before)}.bin": torn}
        assert len(frames.scan(log).spans) == 3
    else:
        assert list(_kept(root).values()) == [BLOCKS.text().split(b"\n")[-2]]


async def test_a_torn_tail_without_closers_is_only_cut(backend: JsonlBackend, root: Path) -> None:
    """Z19, L1: stray bytes behind a balanced log are kept and cut, nothing is appended."""
    await store(backend, EncodedBatch.of(turn(0)))
    log = _log(root)
    whole = log.read_bytes()
    log.write_bytes(whole + b"\x28\xb5")
    await _repair(backend, [])
    assert log.read_bytes() == whole
    assert _kept(root) == {f"torn-{len(whole)}.bin": b"\x28\xb5"}
    assert (await loaded(backend)).torn_marker is None


async def test_closers_alone_are_an_append(backend: JsonlBackend, root: Path) -> None:
    """L1: without a torn tail the closers are one batch, and repeating them is success."""
    await store(backend, EncodedBatch.of([event(0, "turn/start", turn=1)]))
    for _ in range(2):
        await backend.commit_repair(META, None, [_closer(1)], claim=None)
    await backend.commit_repair(META, None, [], claim=None)
    assert (await loaded(backend)).events.next_seq == 2
    assert _kept(root) == {}


CALLS = ["create", "write_at", "sync", "link", "truncate", "sync_data"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("skip", [0, 1, 2])
async def test_a_repair_that_fails_anywhere_is_repeated_with_the_same_events(
    make: OpenBackend, files: FailingFiles, root: Path, call: str, skip: int
) -> None:
    """L1, B3: whichever call fails, the next load finds the same events and the repair is completed."""
    await _torn(make(), root)
    before = (await loaded(make())).events
    seq = before.next_seq
    backend = make(files)
    marker = (await loaded(backend)).torn_marker
    files.fail(call, skip=skip, times=1)
    try:
        await backend.commit_repair(META, marker, [_closer(seq)], claim=None)
    except BackendError:
        found = await loaded(make())
        assert list(found.events)[:seq] == list(before)
    files.rules.clear()
    await backend.commit_repair(META, marker, [_closer(seq)], claim=None)  # the same marker again
    after = await loaded(make())
    assert after.torn_marker is None
    assert list(after.events) == [*before, _closer(seq)]


async def test_a_crash_between_cut_and_append_presents_the_same_tear(
    make: OpenBackend, files: FailingFiles, root: Path, compression: str
) -> None:
    """L1: after a kill behind the cut the quarantine gives the recovered events back."""
    backend = make(files)
    torn = await _torn(backend, root)
    before = (await loaded(backend)).events
    files.fail("write_at", skip=2, times=9)  # the lock's facts and the quarantine are written
    with pytest.raises(BackendError):
        await _repair(backend, [_closer(before.next_seq)])

    found = await loaded(make())
    assert list(found.events) == list(before)
    if compression == "zstd":
        assert isinstance(found.torn_marker, JsonlTear)
        assert (found.torn_marker.size, found.torn_marker.quarantined) == (0, True)
        assert _kept(root) == {f"torn-{found.torn_marker.offset}.bin": torn}
    other = make()
    await _repair(other, [_closer(before.next_seq)])
    assert list((await loaded(other)).events) == [*before, _closer(before.next_seq)]
    assert len(_kept(root)) == 1


@pytest.mark.parametrize("compression", ["zstd"], indirect=True)
@pytest.mark.parametrize("cut", [1, 4, 20, 60])
async def test_a_crash_inside_the_append_of_a_repair(make: OpenBackend, root: Path, cut: int) -> None:
    """L1: the repair's own batch is torn; what was recovered before is recovered again."""
    backend = make()
    torn = await _torn(backend, root)
    before = (await loaded(backend)).events
    log = _log(root)
    whole = log.read_bytes()[: -len(torn)]
    own = EncodedBatch.of([*list(before)[2:], _closer(7)]).frame()
    (log.parent / f"torn-{len(whole)}.bin").write_bytes(torn)
    log.write_bytes(whole + own[:-cut])

    found = await loaded(make())
    expected = [*before, _closer(7)] if cut <= 4 else list(before)
    assert list(found.events) == expected
    await _repair(backend, [] if cut <= 4 else [_closer(7)])
    assert list((await loaded(backend)).events) == [*before, _closer(7)]
    assert len(_kept(root)) == 2  # the first torn bytes, and those of the repair


async def test_a_quarantine_that_the_log_has_left_behind_is_ignored(
    make: OpenBackend, root: Path, compression: str
) -> None:
    """L1: another writer went on where a repair was interrupted; its events count."""
    backend = make()
    torn = await _torn(backend, root)
    log = _log(root)
    whole = log.read_bytes()[: -len(torn)]
    (log.parent / f"torn-{len(whole)}.bin").write_bytes(torn)
    log.write_bytes(whole)
    if compression == "zstd":
        assert (await loaded(backend)).events.next_seq == 7
    theirs = EncodedBatch.of([event(2, title="theirs"), event(3, title="theirs")])
    data = theirs.frame() if compression == "zstd" else theirs.text()
    log.write_bytes(whole + data)
    found = await loaded(backend)
    assert found.torn_marker is None
    assert list(found.events)[2:] == list(theirs.events())
    log.write_bytes(whole + data[:-1])  # their batch is torn at the same place: it contradicts the quarantine
    found = await loaded(backend)
    assert list(found.events)[2:] == list(theirs.events())[: 2 if compression == "zstd" else 1]


async def test_a_repair_of_another_log_is_refused(backend: JsonlBackend, root: Path) -> None:
    """B3: the log has changed since it was read: nothing is cut."""
    await _torn(backend, root)
    found = await loaded(backend)
    log = _log(root)
    data = log.read_bytes()
    log.write_bytes(data[:-1])
    for closers in ([_closer(found.events.next_seq)], []):
        with pytest.raises(UnexpectedSeqError):
            await backend.commit_repair(META, found.torn_marker, closers, claim=None)
    log.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UnexpectedSeqError):
        await backend.commit_repair(META, found.torn_marker, [_closer(found.events.next_seq)], claim=None)
    assert _kept(root) == {}


async def test_a_marker_without_anything_to_append_and_another_log(backend: JsonlBackend, root: Path) -> None:
    """B3: a marker of stray bytes only, used on a log that went on, is refused."""
    await store(backend, EncodedBatch.of(turn(0)))
    log = _log(root)
    whole = log.read_bytes()
    log.write_bytes(whole + b"\x28\xb5")
    marker = (await loaded(backend)).torn_marker
    log.write_bytes(whole)
    await append(backend, batch(2, 3), None)
    with pytest.raises(UnexpectedSeqError):
        await backend.commit_repair(META, marker, [], claim=None)
    assert (await loaded(backend)).events.next_seq == 5


async def test_closers_that_do_not_follow_are_refused(backend: JsonlBackend, root: Path) -> None:
    """B3: closers that leave a hole behind the torn tail cut nothing."""
    await store(backend, batch(0, 2))
    log = _log(root)
    log.write_bytes(log.read_bytes() + b"\x28\xb5")
    with pytest.raises(UnexpectedSeqError):
        await _repair(backend, [_closer(9)])
    assert _kept(root) == {}


async def test_a_whole_repair_may_be_repeated(backend: JsonlBackend, root: Path) -> None:
    """L1, B3: the reply of a repair was lost; the same repair again changes nothing."""
    await _torn(backend, root)
    found = await loaded(backend)
    closers = [_closer(found.events.next_seq)]
    await backend.commit_repair(META, found.torn_marker, closers, claim=None)
    data = _log(root).read_bytes()
    await backend.commit_repair(META, found.torn_marker, closers, claim=None)
    assert _log(root).read_bytes() == data


async def test_torn_bytes_that_are_kept_already(make: OpenBackend, files: FailingFiles, root: Path) -> None:
    """L1: a quarantine that holds the same bytes is not written again; other bytes get another name."""
    backend = make(files)
    torn = await _torn(backend, root)
    found = await loaded(backend)
    assert isinstance(found.torn_marker, JsonlTear)
    bytes_torn = _log(root).read_bytes()[found.torn_marker.offset :]
    folder = _log(root).parent
    (folder / f"torn-{found.torn_marker.offset}.bin").write_bytes(b"something else")
    (folder / f"torn-{found.torn_marker.offset}-1.bin").write_bytes(bytes_torn)
    await _repair(backend, [_closer(found.events.next_seq)])
    assert len(_kept(root)) == 2
    assert torn.endswith(bytes_torn)


async def test_a_quarantine_whose_folder_cannot_be_synced(
    make: OpenBackend, files: FailingFiles, root: Path
) -> None:
    """L1: when the torn bytes are not certainly kept, nothing is cut."""
    backend = make(files)
    await _torn(backend, root)
    data = _log(root).read_bytes()
    found = await loaded(backend)
    files.fail("sync", skip=1)
    with pytest.raises(BackendError, match="nothing was cut"):
        await _repair(backend, [_closer(found.events.next_seq)])
    assert _log(root).read_bytes() == data


async def test_plain_text_in_quarantine_gives_nothing_back(backend: JsonlBackend, root: Path) -> None:
    """L1: whole lines of plain text stay in the log, so a plain quarantine never holds events to recover."""
    await store(backend, batch(0, 2))
    log = _log(root)
    (log.parent / f"torn-{log.stat().st_size}.bin").write_bytes(
        EncodedBatch.of(deltas(2, 5)).text() + b"\x28\xb5\x2f\xfd"
    )
    found = await loaded(backend)
    assert found.torn_marker is None
    assert list(found.events) == events(0, 2)
