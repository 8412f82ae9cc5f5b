"""SIGKILL at every system call of delete, copy and commits: whole, gone, or to be done again (B2, D2)."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import turnlog
from tests.crash.killpoints import KillPoint, have_strace, kill_points, run_writer
from tests.crash.scenarios import CWD, add_turn
from tests.faults.drill import SESSION_ID, Told, count, survivors, told
from tests.faults.lanes import SOAK, lane, need
from tests.faults.test_erased_bytes import picture

KINDS = ("jsonl none", "jsonl zstd", "sqlite")
POINTS = 1 << 30 if SOAK else 12
"""Kill points that are tried, spread over all there are."""


@pytest.fixture(autouse=True)
def _needs_strace() -> None:
    need(have_strace(), "strace is missing; apt-get install strace")


def url_of(kind: str, folder: Path) -> str:
    """Return the URL of a store of one kind in a folder."""
    return f"sqlite:{folder}/s.db" if kind == "sqlite" else f"jsonl:{folder}/s?compression={kind.split()[1]}"


def chosen(points: list[KillPoint]) -> Iterator[KillPoint]:
    """Yield as many kill points as are tried, the last ones among them."""
    step = max(1, len(points) // POINTS)
    yield from points[len(points) % step :: step] if step > 1 else points


def _ignoring(work: Callable[[str], None], url: str, ack: int) -> None:
    """Run work that has nothing to tell."""
    work(url)


async def record(url: str, *, turns: int = 2, tear: Path | None = None) -> Told:
    """Store the session with an image, and torn bytes beside it where asked; return what is durable."""
    async with turnlog.open(url) as store, store.create(id=SESSION_ID, cwd=CWD) as session:
        image = await store.attachments.put(picture(random.Random(SESSION_ID)))
        async with session.turn() as turn:
            turn.user([{"type": "text", "text": "look"}, image])
        for _ in range(turns):
            add_turn(session, session.next_turn)
            await session.flush()
        known = told(session)
    for log in () if tear is None else tear.rglob("session.jsonl*"):
        (log.parent / "torn-77.bin").write_bytes(b"torn off " * 9)
    return known


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_deletion_can_be_repeated(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After any death in a deletion the session is whole, or gone without a trace, or deleted by a repeat."""

    def prepare(name: str) -> tuple[str, Path, Told]:
        folder = tmp_path / name
        folder.mkdir()
        url = url_of(kind, folder)
        return url, folder, asyncio.run(record(url, tear=folder))

    def delete(url: str) -> None:
        async def work() -> None:
            async with turnlog.open(url) as store:
                await store.delete(SESSION_ID)

        asyncio.run(work())

    warm, _, _ = prepare("warm")
    delete(warm)
    url, _, _ = prepare("count")
    points = kill_points(run_writer(lambda ack: delete(url), tmp_path / "trace").calls)
    assert len(points) > 15, "the counting run saw too few calls to mean anything"
    gone = 0
    with lane("SIGKILL in delete", kind, capsys) as figures:
        for number, point in enumerate(chosen(points)):
            url, folder, known = prepare(str(number))
            outcome = run_writer(functools.partial(_ignoring, delete, url), tmp_path / "trace", point)
            figures.faults += outcome.killed
            figures.acknowledged += known.events
            left = asyncio.run(_after_deletion(url, known))
            figures.unloadable += left == "broken"
            gone += left == "gone"
            files = [file for file in folder.rglob("*") if file.is_file() and file.name != "session.lock"]
            files = [file for file in files if not file.name.startswith("s.db")]
            assert files == [], f"{point}: {files} outlived the deletion"
        figures.note = f"{gone} were gone at once, the others whole and deleted by a repeat"


async def _after_deletion(url: str, known: Told) -> str:
    """Say whether the session is gone, or whole (and then delete it), or neither."""
    async with turnlog.open(url) as store:
        try:
            view = await store.inspect(SESSION_ID)
        except turnlog.SessionNotFoundError:
            return "gone"
        except turnlog.TurnlogError:
            return "broken"
        if view.events.snapshot(known.events).digest() != known.digest:
            return "broken"
        await store.delete(SESSION_ID, takeover=True)
        return "whole"


@pytest.mark.parametrize(("kind", "target"), [(a, b) for a in KINDS for b in KINDS if SOAK or a != b][:9])
def test_a_killed_copy_is_taken_up(
    kind: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After any death in a copy the source is as it was, and copying again makes the copy whole."""
    source_folder = tmp_path / "source"
    source_folder.mkdir()
    source = url_of(kind, source_folder)
    known = asyncio.run(record(source, turns=3))

    def copy(to: str) -> None:
        async def work() -> None:
            async with turnlog.open(source) as store, turnlog.open(to) as other:
                report = await store.copy(other, [SESSION_ID])
                assert not report.failed, report.failed

        asyncio.run(work())

    def place(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        return url_of(target, folder)

    copy(place("warm"))
    counting = place("count")
    points = kill_points(run_writer(lambda ack: copy(counting), tmp_path / "trace").calls)
    with lane("SIGKILL in copy", f"{kind} to {target}", capsys) as figures:
        for number, point in enumerate(chosen(points)):
            to = place(str(number))
            outcome = run_writer(functools.partial(_ignoring, copy, to), tmp_path / "trace", point)
            figures.faults += outcome.killed
            figures.acknowledged += known.events
            copy(to)
            left = survivors(to, known)
            figures.lost += left.lost
            figures.unloadable += not left.loads
        assert asyncio.run(_digest(source)) == known


async def _digest(url: str) -> Told:
    async with turnlog.open(url) as store:
        events = (await store.read_from(SESSION_ID, 0)).events
        return Told(len(events), events.digest())


def test_no_kill_in_a_commit_of_sqlite_loses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every system call of making a database, appending and closing is a place to die; none loses."""

    def work(url: str, ack: int) -> None:
        async def run() -> None:
            async with turnlog.open(url) as store:
                try:
                    session = await store.resume(SESSION_ID)
                except turnlog.SessionNotFoundError:
                    session = await store.create(id=SESSION_ID, cwd=CWD)
                for _ in range(2):
                    add_turn(session, session.next_turn)
                    await session.flush()
                    known = told(session)
                    os.write(ack, f"{known.events} {known.digest}\n".encode())

        asyncio.run(run())

    def place(name: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        return url_of("sqlite", folder)

    ignored = os.open(os.devnull, os.O_WRONLY)
    warm = place("warm")
    work(warm, ignored)
    survivors(warm, Told())
    counting = place("count")
    points = kill_points(run_writer(lambda ack: work(counting, ack), tmp_path / "trace").calls)
    tried = list(chosen(points))
    with lane("SIGKILL in commits", "sqlite", capsys) as figures:
        for number, point in enumerate(tried):
            url = place(str(number))
            outcome = run_writer(functools.partial(work, url), tmp_path / "trace", point)
            if not outcome.killed:
                continue  # this run did without the call
            last = outcome.acknowledged[-1].split() if outcome.acknowledged else (b"0", b"")
            known = Told(int(last[0]), last[1].decode())
            count(figures, known, Told(), survivors(url, known))
        assert figures.faults >= 0.8 * len(tried), f"only {figures.faults} of {len(tried)} were reached"
    os.close(ignored)
