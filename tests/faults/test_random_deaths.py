"""Databases: writers and the server itself killed with -9 at random moments lose nothing (D2, B2, B3)."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.faults.drill import Told, Writer, count, survivors, write
from tests.faults.lanes import SOAK, Lane, lane
from tests.faults.stores import make_place

DEATHS = 300 if SOAK else 15
CRASHES = 60 if SOAK else 3
FRESH = 10
"""Deaths after which a fresh session keeps each check short."""


def _known_after(writer: Writer, known: Told) -> Told:
    told = writer.kill()
    assert writer.status == signal.SIGKILL, "the writer failed by itself"
    return known if told.events < known.events else told


def _begin(url: str, session_id: str, chance: random.Random) -> Writer:
    """Start a writer and let it work for a moment."""
    writer = Writer(lambda ack: write(url, ack, session_id=session_id))
    for _ in range(chance.randint(0, 2)):
        writer.next()
    time.sleep(chance.uniform(0.0, 0.03))
    return writer


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_killed_writer(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A writer killed at a random moment, resumed by the next one, and so on."""
    place = make_place(kind, tmp_path)
    chance = random.Random(kind)
    with lane("SIGKILL at random", kind, capsys) as figures:
        known = Told()
        for number in range(DEATHS):
            session_id = f"s-{number // FRESH}"
            known = known if number % FRESH else Told()
            told = _known_after(_begin(place.url, session_id, chance), known)
            known = count(figures, told, known, survivors(place.url, told, session_id=session_id))


def test_a_killed_server(capsys: pytest.CaptureFixture[str]) -> None:
    """PostgreSQL is killed with -9 in the middle of appends and started again."""
    from tests.postgres_cluster import Cluster

    cluster = Cluster()
    chance = random.Random(3)
    try:
        cluster.start()
        with lane("server killed with -9", "postgres", capsys) as figures:
            _crash_it(cluster, cluster.url(), chance, figures)
    finally:
        cluster.remove()


def _crash_it(cluster: object, url: str, chance: random.Random, figures: Lane) -> None:
    from tests.postgres_cluster import Cluster

    assert isinstance(cluster, Cluster)
    known = Told()
    for number in range(CRASHES):
        session_id = f"s-{number // FRESH}"
        known = known if number % FRESH else Told()
        writer = _begin(url, session_id, chance)
        cluster.kill()
        told = _known_after(writer, known)
        cluster.start()
        known = count(figures, told, known, survivors(url, told, session_id=session_id))
