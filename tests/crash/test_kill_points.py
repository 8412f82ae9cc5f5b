"""SIGKILL at every system call of the write paths: nothing acknowledged is lost, all loads (D2, R1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.killpoints import Outcome, have_strace, kill_points, run_writer
from tests.crash.scenarios import Scenario, StoppedHolder, check_after_kill
from tests.faults.lanes import need, report

SCENARIOS = [
    Scenario(name, compression)
    for compression in ("none", "zstd", "sqlite")
    for name in ("materialise", "append", "repair", "takeover")
]


@pytest.fixture(autouse=True)
def _needs_strace() -> None:
    need(have_strace(), "strace is missing; apt-get install strace")


def _run(scenario: Scenario, folder: Path, kill_at: object = None) -> tuple[Path, int, Outcome]:
    """One prepared root, one writer, killed at `kill_at`; returns the root and what is acknowledged."""
    root = folder / "root"
    before = scenario.prepare(root)
    holder = StoppedHolder(root, scenario.compression) if scenario.name == "takeover" else None
    try:
        outcome = run_writer(lambda ack: scenario.write(root, ack), folder / "trace", kill_at)  # type: ignore[arg-type]  # a KillPoint or None
    finally:
        if holder is not None:
            holder.end()
    return root, max([before, *map(int, outcome.acknowledged)]), outcome


def _warm_up(scenario: Scenario, root: Path) -> None:
    """Do it all once in this process, so that a forked writer imports nothing and all runs count alike."""
    scenario.prepare(root)
    ignored = os.open(os.devnull, os.O_WRONLY)
    scenario.write(root, ignored)
    os.close(ignored)
    check_after_kill(root, scenario.compression, 0)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: f"{s.name}-{s.compression}")
def test_no_kill_point_loses_an_acknowledged_event(
    scenario: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every entry of every thread into a file system call is a place to die; each is tried once."""
    _warm_up(scenario, tmp_path / "warm")
    counting = tmp_path / "count"
    counting.mkdir()
    root, acknowledged, outcome = _run(scenario, counting)
    check_after_kill(root, scenario.compression, acknowledged)
    points = kill_points(outcome.calls)
    assert len(points) > 15, "the counting run saw too few calls to mean anything"
    killed = events = 0
    for number, point in enumerate(points):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        root, acknowledged, outcome = _run(scenario, folder, point)
        killed += outcome.killed
        events += acknowledged
        try:
            check_after_kill(root, scenario.compression, acknowledged)
        except BaseException as error:
            error.add_note(f"killed at {point}; acknowledged {acknowledged}; left in {root}")
            raise
    assert killed >= 0.8 * len(points), f"only {killed} of {len(points)} kill points were reached"
    kind = scenario.compression
    report(
        f"SIGKILL in {scenario.name}",
        kind if kind == "sqlite" else f"jsonl {kind}",
        capsys,
        faults=killed,
        acknowledged=events,
    )
