"""Media that fail: EIO at every write, sync, link and cut, short writes, a full disk (D2, B2, B3)."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import resource
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

import turnlog
from tests.crash.killpoints import KillPoint, Outcome, have_strace, kill_points, run_writer
from tests.crash.scenarios import CWD, Scenario, StoppedHolder, add_turn, store_url
from tests.crash.scenarios import SESSION_ID as CRASH_ID
from tests.faults.drill import SESSION_ID, Told, Writer, count, survivors, tell, told
from tests.faults.lanes import SOAK, lane, need
from tests.faults.media import fill_up, small_file_system
from tests.faults.test_kill_tools import KINDS, url_of

CALLS = (
    "pwrite64", "write", "fsync", "fdatasync", "linkat", "link", "rename", "renameat", "renameat2",
    "ftruncate", "mkdirat", "mkdir", "unlinkat", "unlink", "openat",
)  # fmt: skip
"""System calls that are made to fail. Those of the writer's own pipes are told apart by their place."""
TRIES = 20
POINTS = 1 << 30 if SOAK else 14


MUST_FAIL = {
    "jsonl none": {"pwrite64", "fsync", "fdatasync", "linkat"},
    "jsonl zstd": {"pwrite64", "fsync", "fdatasync", "linkat"},
    "sqlite": {"pwrite64", "fsync", "fdatasync", "openat"},
}
"""Calls that must have been made to fail on each backend, or the lane shows less than it says."""

T = TypeVar("T")


async def insist(step: Callable[[], Awaitable[T]]) -> T:
    """Do a step again after each failure, as a program on a bad medium would; give up in the end."""
    for _ in range(TRIES - 1):
        with suppress(turnlog.TurnlogError):
            return await step()
    return await step()


async def write(url: str, ack: int) -> None:
    """Write two turns, insisting on each step. One store throughout: a fault counts calls by thread."""

    async def opened() -> turnlog.SessionStore:
        return await turnlog.open(url)

    store = await insist(opened)

    async def begun() -> turnlog.LiveSession:
        try:
            return await store.resume(SESSION_ID)
        except turnlog.SessionNotFoundError:
            return await store.create(id=SESSION_ID, cwd=CWD)

    session = await insist(begun)
    for _ in range(2):
        add_turn(session, session.next_turn)
        await insist(session.flush)
        tell(ack, session)
    with suppress(turnlog.TurnlogError, ExceptionGroup):  # a claim that cannot be given back ends with us
        await store.aclose()


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_at_any_call_loses_nothing(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each system call fails once with EIO; flushing again writes everything that was pending."""
    need(have_strace(), "strace is missing; apt-get install strace")

    def place(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        return url_of(kind, folder)

    def work(url: str, ack: int) -> None:
        asyncio.run(write(url, ack))

    ignored = os.open(os.devnull, os.O_WRONLY)
    warm = place("warm")
    work(warm, ignored)
    survivors(warm, Told())
    os.close(ignored)
    counting = place("count")
    points = kill_points(run_writer(lambda ack: work(counting, ack), tmp_path / "trace").calls)
    # A pipe that fails would be the test's own, not the medium's.
    points = [p for p in points if p.syscall in CALLS and p.syscall != "write"]
    assert len(points) > 8, "the counting run saw too few calls to mean anything"
    failed: set[str] = set()
    with lane("EIO", kind, capsys) as figures:
        for number, point in enumerate(_spread(points)):
            url = place(str(number))
            trace = tmp_path / "trace"
            outcome = run_writer(functools.partial(work, url), trace, point, fault="error=EIO")
            if "(INJECTED)" not in trace.read_text(errors="replace"):
                continue  # this run did without the call
            failed.add(point.syscall)
            last = outcome.acknowledged[-1].split()
            known = Told(int(last[0]), last[1].decode())
            try:
                left = survivors(url, known)
                assert known.events >= 32, f"{point}: not everything that was pending was written"
            except BaseException as error:
                error.add_note(f"EIO at {point}, in {url}")
                raise
            count(figures, known, Told(), left)
            assert left.loads, f"{point}: {left}"
        figures.note = (
            f"one failing call a round: {', '.join(sorted(failed))}; all pending was written afterwards"
        )
    assert failed >= MUST_FAIL[kind], f"never made to fail: {MUST_FAIL[kind] - failed}"


def _spread(points: list[KillPoint]) -> list[KillPoint]:
    """Return as many points as are tried: the first of each call, and others spread over the rest."""
    first = {point.syscall: point for point in reversed(points)}
    rest = [point for point in points if point not in first.values()]
    step = max(1, len(rest) // max(1, POINTS - len(first)))
    return [*first.values(), *rest[::step]]


async def _take(url: str, ack: int) -> None:
    """Take the session over and write a turn, insisting on each step."""

    async def opened() -> turnlog.SessionStore:
        return await turnlog.open(url)

    store = await insist(opened)

    async def taken() -> turnlog.LiveSession:
        return await store.resume(CRASH_ID, takeover=True)

    session = await insist(taken)
    add_turn(session, session.next_turn)
    await insist(session.flush)
    tell(ack, session)
    with suppress(turnlog.TurnlogError, ExceptionGroup):  # a claim that cannot be given back ends with us
        await store.aclose()


def _take_from_a_stopped_writer(encoding: str, folder: Path, point: KillPoint | None) -> tuple[Outcome, str]:
    """Let a writer take a session over from a stopped process while one of its calls fails."""
    root = folder / "root"
    Scenario("takeover", encoding).prepare(root)
    holder = StoppedHolder(root, encoding)

    def work(ack: int) -> None:
        asyncio.run(_take(store_url(root, encoding), ack))

    try:
        outcome = run_writer(work, folder / "trace", point, fault="error=EIO")
    finally:
        holder.end()
    return outcome, store_url(root, encoding)


@pytest.mark.parametrize("encoding", ["none", "zstd"])
def test_an_error_at_any_call_of_a_takeover(
    encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files change their names in a takeover; a call that fails there, a rename too, loses nothing."""
    need(have_strace(), "strace is missing; apt-get install strace")
    folders = (tmp_path / str(number) for number in itertools.count())

    def take(point: KillPoint | None) -> tuple[Outcome, str, Path]:
        folder = next(folders)
        folder.mkdir()
        return *_take_from_a_stopped_writer(encoding, folder, point), folder / "trace"

    take(None)  # so that what is counted imports nothing
    counted, _, _ = take(None)
    points = [p for p in kill_points(counted.calls) if p.syscall in CALLS and p.syscall != "write"]
    failed: set[str] = set()
    with lane("EIO in takeover", f"jsonl {encoding}", capsys) as figures:
        for point in _spread(points):
            outcome, url, trace = take(point)
            if "(INJECTED)" not in trace.read_text(errors="replace"):
                continue  # this run did without the call
            failed.add(point.syscall)
            last = outcome.acknowledged[-1].split()
            known = Told(int(last[0]), last[1].decode())
            left = survivors(url, known, session_id=CRASH_ID)
            count(figures, known, Told(), left)
            assert left.loads, f"{point}: {left}"
        figures.note = f"failed: {', '.join(sorted(failed))}"
    assert failed & {"rename", "renameat", "renameat2"}, f"no rename was made to fail, only {failed}"


@contextmanager
def ext4(place: Path, size: int) -> Iterator[Path]:
    """Mount a small ext4 file system from a file for the length of a block."""
    image = place.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    place.mkdir()
    done = subprocess.run(["mount", "-o", "loop", str(image), str(place)], capture_output=True, check=False)
    need(done.returncode == 0, f"a file system cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("medium", ["tmpfs", "ext4"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_loses_nothing(
    kind: str, medium: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk fills up under a writer; once there is room everything pending is written (D2)."""
    mounted = small_file_system(tmp_path / "m", "3m") if medium == "tmpfs" else ext4(tmp_path / "m", 8 << 20)
    with lane(f"full disk ({medium})", kind, capsys) as figures, mounted as place:
        url = url_of(kind, place)
        for number in range(8 if SOAK else 2):
            ballast = place / "ballast"
            session_id = f"full-{number}"
            known, refused = asyncio.run(_fill(url, session_id, ballast))
            assert refused > 0, "the disk was never full"
            count(figures, known, Told(), survivors(url, known, session_id=session_id))
        figures.note = "short writes and ENOSPC; everything pending was written once there was room"


async def _fill(url: str, session_id: str, ballast: Path) -> tuple[Told, int]:
    """Write until there is no room, make room, write the rest; return what is durable and the refusals."""
    refused = 0
    async with turnlog.open(url, write_window=0.002) as store:
        session = await store.create(id=session_id, cwd=CWD)
        add_turn(session, 1)
        await session.flush()
        acknowledged = session.durable_seq
        await asyncio.to_thread(fill_up, ballast)
        for _ in range(40):
            text = os.urandom(3000).hex()
            session.append("feedback/record", {"text": text})
            try:
                await session.flush()
                acknowledged = session.durable_seq
            except turnlog.TurnlogError:
                refused += 1
                if refused == 3:
                    break
        stored = (await store.read_from(session_id, 0)).events
        assert len(stored) >= acknowledged, "an acknowledged event is missing on the full disk"
        await asyncio.to_thread(ballast.unlink)
        await session.flush()
        assert session.durable_seq == session.seq, "something pending was not written"
        add_turn(session, 2)
        await session.flush()
        return told(session), refused


@pytest.mark.parametrize("kind", KINDS)
def test_short_writes_lose_nothing(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A write that the system takes only in part, and then refuses, is taken back and written again."""
    url = url_of(kind, tmp_path)
    with lane("short write", kind, capsys) as figures:
        known = Told()
        for number in range(200 if SOAK else 20):
            session_id = f"short-{number // 10}"
            known = known if number % 10 else Told()
            writer = Writer(functools.partial(_limited, url, session_id, tmp_path, number))
            last = writer.end()
            assert writer.status == 0, "the writer failed by itself"
            known = count(figures, last, known, survivors(url, last, session_id=session_id))
        figures.note = "a limit inside the next batch, then lifted"


async def _limited(url: str, session_id: str, root: Path, number: int, ack: int) -> None:
    """Let no file grow beyond the middle of the next batch, then lift the limit and flush again."""
    async with turnlog.open(url, write_window=1e9) as store:
        try:
            session = await store.resume(session_id)
        except turnlog.SessionNotFoundError:
            session = await store.create(id=session_id, cwd=CWD)
            add_turn(session, 1)
        await session.flush()
        (log,) = root.glob("s.db-wal" if url.startswith("sqlite:") else f"s/*/{session_id}/session.jsonl*")
        add_turn(session, session.next_turn)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 1 + number * 7 % 300, hard))
        failed = False
        try:
            await session.flush()
        except turnlog.TurnlogError:
            failed = True
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, hard))
        assert failed, "the write was not cut short"
        await session.flush()
        assert session.durable_seq == session.seq
        tell(ack, session)
