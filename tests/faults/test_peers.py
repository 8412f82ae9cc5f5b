"""Two writers of one session; and, in the long form, other session stores through the same drills.

Those are installed as the bench pins them, and are measured and held to nothing.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import turnlog
from tests.faults.drill import SESSION_ID, Told, Writer, count, survivors, write
from tests.faults.lanes import SOAK, lane
from tests.faults.power_loss import power_loss_mount
from tests.faults.stores import KINDS, make_place

soak = pytest.mark.skipif(not SOAK, reason="installs other stores; part of the long form")

ROOT = Path(__file__).parents[2]
CUTS = 8
ACKED = 20
"""Turns that are acknowledged before each cut."""
EACH = 150
"""Turns of each of two writers."""
KNOCKS = EACH if SOAK else 20
"""Attempts of the second writer on our own stores."""
LATE = {"type": "feedback/record", "seq": 1 << 20, "time": 1, "data": {}}

COUNTS = {
    "langgraph": "select count(distinct task_id) from writes where thread_id = 's-0'",
    "openai_agents": "select count(*) / 26 from agent_messages where session_id = 's-0'",
    "eventsourcing": "select count(*) / 26 from stored_events",
    "pydantic_ai_harness": "select count(*) from events where run_id = 's-0'",
    "adk": "select count(*) from events where session_id = 's-0'",
}
"""How each store is asked, behind its back, how many turns it holds."""


@pytest.fixture(scope="module", name="python")
def _python() -> Path:
    """Return the Python of the peers' environment."""
    from bench.databases import install_peers

    return install_peers()


def start(python: Path, peer: str, path: Path, first: int, turns: int) -> subprocess.Popen[str]:
    """Start a writer of a peer."""
    return subprocess.Popen(
        [str(python), "-m", "tests.faults.peers_side", peer, str(path), str(first), str(turns)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def stored(peer: str, path: Path) -> int | None:
    """Return how many turns a peer's database holds, or None when it cannot be read."""
    try:
        with closing(sqlite3.connect(path)) as db:
            if db.execute("pragma integrity_check").fetchone() != ("ok",):
                return None
            return int(db.execute(COUNTS[peer]).fetchone()[0])
    except sqlite3.Error:
        return None


@pytest.fixture(name="mount")
def _mount() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="turnlog-peers-") as folder:
        yield Path(folder) / "mount"


@soak
@pytest.mark.parametrize("peer", sorted(COUNTS))
def test_power_loss(peer: str, python: Path, mount: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same file system and the same cuts as for our own stores."""
    with lane("power loss", peer, capsys, peer=True) as figures, power_loss_mount(mount) as power:
        for number in range(CUTS):
            path = power.place / f"{number}.db"
            with start(python, peer, path, 0, 1000) as process:
                assert process.stdout is not None
                acked = sum(process.stdout.readline().strip().isdigit() for _ in range(ACKED))
                process.send_signal(signal.SIGKILL)
                acked += sum(line.strip().isdigit() for line in process.stdout)
            power.cut(number if number % 2 else None)
            left = stored(peer, path)
            figures.faults += 1
            figures.acknowledged += acked
            figures.unloadable += left is None
            figures.lost += max(0, acked - (left or 0))


@soak
@pytest.mark.parametrize("peer", sorted(COUNTS))
def test_two_writers(peer: str, python: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes write one session at the same time."""
    path = tmp_path / "peer.db"
    with start(python, peer, path, 0, 1) as first:
        first.communicate()
    with lane("two writers", peer, capsys, peer=True) as figures:
        before = stored(peer, path) or 0
        writers = [start(python, peer, path, at, EACH) for at in (1000, 2000)]
        told = [process.communicate()[0].splitlines() for process in writers]
        acked = [sum(line.isdigit() for line in lines) for lines in told]
        refused = sum(line.startswith("refused") for lines in told for line in lines)
        left = stored(peer, path)
        figures.faults = 1
        figures.acknowledged = sum(acked)
        figures.unloadable = int(left is None)
        figures.lost = max(0, sum(acked) - ((left or 0) - before))
        mixed = all(count > EACH // 4 for count in acked)
        figures.note = f"{refused} refused; " + (
            "both wrote into one session" if mixed else "one of them wrote"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_here(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second process is told who writes; it stores nothing, and nothing of the first is lost (W1)."""
    place = make_place(kind, tmp_path)
    with lane("two writers", kind, capsys) as figures:
        first = Writer(lambda ack: write(place.url, ack))
        before = first.next()
        assert before is not None
        second = Writer(lambda ack: _knock(place.url, first.pid, ack))
        refused = second.end().events
        assert second.status == 0, "the second writer was let in, or failed by itself"
        known = first.kill()
        assert known.events > before.events, "the first writer was held up"
        count(figures, known, Told(), survivors(place.url, known))
        figures.note = f"{refused} refused; one of them wrote"
        assert refused == KNOCKS


async def _knock(url: str, owner: int, ack: int) -> None:
    """Try to resume the session again and again, and to append to it; tell how often that was refused."""
    async with turnlog.open(url) as store:
        for number in range(KNOCKS):
            with pytest.raises(turnlog.SessionBusyError) as busy:
                await (store.append(SESSION_ID, [LATE]) if number % 2 else store.resume(SESSION_ID))
            assert busy.value.owner is not None
            assert busy.value.owner.pid == owner
            os.write(ack, f"{number + 1} -\n".encode())
