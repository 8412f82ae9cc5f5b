"""Power loss: what was acknowledged is there after a cut that takes everything not synced (D2, B2)."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.drill import SESSION_ID, Told, Writer, count, saved, survivors, write
from tests.faults.lanes import SOAK, lane
from tests.faults.power_loss import PowerLossMount, power_loss_mount

pytestmark = pytest.mark.filterwarnings("ignore::turnlog.backends.jsonl.root.UnsafeLockWarning")
"""Whose locks hold on this file system is no question here."""

KINDS = ("jsonl none", "jsonl zstd", "sqlite", "postgres")
ROUNDS = (
    {"jsonl none": 120, "jsonl zstd": 120, "sqlite": 80, "postgres": 24} if SOAK else dict.fromkeys(KINDS, 3)
)
"""Power cuts by backend."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that a server under another user may pass, too."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-power-"))
    folder.chmod(0o755)
    yield folder / "mount"
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def served(kind: str, mount: PowerLossMount) -> Iterator[tuple[str, Callable[[int | None], None]]]:
    """Give the URL of a store on the mount and the way to cut its power.

    Args:
        kind: One of `KINDS`.
        mount: Where it is.
    """
    if kind != "postgres":
        place = mount.place / "sessions"
        url = f"sqlite:{place}.db" if kind == "sqlite" else f"jsonl:{place}?compression={kind.split()[1]}"
        yield url, mount.cut
        return
    from tests.postgres_cluster import Cluster  # needs the driver and the server's programs

    before = tempfile.tempdir
    tempfile.tempdir = str(mount.place)
    try:
        cluster = Cluster()
    finally:
        tempfile.tempdir = before
    mount.settle()

    def cut(seed: int | None) -> None:
        cluster.kill()
        mount.cut(seed)
        cluster.start()

    try:
        cluster.start()
        yield cluster.url(), cut
    finally:
        cluster.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cuts at random moments, of everything unsynced and of a random half of it, on one growing session."""
    chance = random.Random(kind)
    with (
        lane("power loss", kind, capsys) as figures,
        power_loss_mount(place) as mount,
        served(kind, mount) as (url, cut),
    ):
        known = Told()
        for number in range(ROUNDS[kind]):
            if number % 20 == 0:  # a fresh session keeps each check short
                known, session_id = Told(), f"drill-{number}"
            seed = number if number % 2 else None
            told = _killed(url, chance, known, session_id)
            cut(seed)
            known = count(figures, told, known, survivors(url, told, session_id=session_id))
        counts = mount.counts()
        figures.note = f"{counts['lost_bytes']:,} unsynced bytes dropped, {counts['syncs']:,} syncs"
        assert counts["lost_bytes"] > 0, "no cut found anything unsynced, so none of them was a test"


@pytest.mark.parametrize("kind", KINDS)
def test_without_syncs_the_lane_loses(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The control: on a disk that ignores syncs the same drill loses acknowledged events and says so."""
    with (
        lane("power loss, syncs ignored", kind, capsys, control=True) as figures,
        power_loss_mount(place, deaf=True) as mount,
        served(kind, mount) as (url, cut),
    ):
        writer = Writer(lambda ack: write(url, ack))
        for _ in range(3):
            assert writer.next() is not None
        told = writer.kill()
        try:
            cut(None)
        except AssertionError:
            # A server whose data are gone does not start again.
            figures.faults, figures.acknowledged, figures.lost = 1, told.events, told.events
            return
        count(figures, told, Told(), survivors(url, told))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "postgres"])
def test_blocks_that_arrive_out_of_order(kind: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later block of an unsynced write without an earlier one takes nothing that was acknowledged."""
    # Checksums tell that such a write is torn. In plain text whole events behind a hole are damage (R2): that
    # is told, and a salvage gives back everything that was acknowledged.
    chance = random.Random(kind)
    is_plain = kind == "jsonl none"
    with (
        lane("power loss, blocks out of order", kind, capsys, damages=is_plain) as figures,
        power_loss_mount(place) as mount,
        served(kind, mount) as (url, _),
    ):
        known, part = Told(), url
        for number in range(ROUNDS[kind]):
            if number % 20 == 0 or known == Told():
                known, part = Told(), url.replace("sessions", f"sessions{number}")
            told = _killed(part, chance, known)
            mount.cut(number, scattered=True)
            left = survivors(part, told)
            if is_plain and not left.loads and saved(part, told):
                left = replace(left, lost=0)
            known = count(figures, told, known, left)
        figures.note = "damage in plain text is salvaged whole" if is_plain else ""


def _killed(url: str, chance: random.Random, known: Told, session_id: str = SESSION_ID) -> Told:
    """Let a writer write for a while, kill it, and return what is acknowledged by then."""
    writer = Writer(lambda ack: write(url, ack, session_id=session_id))
    for _ in range(chance.randint(0, 4)):
        if writer.next() is None:
            writer.end()
            pytest.fail("the writer failed by itself")
    time.sleep(chance.uniform(0.0, 0.02))
    told = writer.kill()
    return known if told.events < known.events else told
