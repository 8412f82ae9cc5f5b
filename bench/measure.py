"""Runs one job in a fresh process and returns its figures; repeats it in turn with its rivals.

Owns processes, repetition and medians. The jobs are in `jobs` and `jobs.mjs`, the report in `run`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.interop.peer_process import PEER, find_node

Figures = dict[str, float]
ROOT = Path(__file__).resolve().parent.parent


def ours(job: str, **args: Any) -> Figures:
    """Run one of turnlog's jobs."""
    return _run([sys.executable, "-m", "bench.jobs", job, json.dumps(args)], ROOT)


def theirs(job: str, **args: Any) -> Figures:
    """Run one of the original's jobs on Node."""
    return _run([str(find_node()), "jobs.mjs", job, json.dumps(args)], PEER)


def in_turn(runs: int, contestants: dict[str, Callable[[Path], Figures]], place: Path) -> dict[str, Figures]:
    """Run the contestants in turn, each in a fresh folder, `runs` times; return the medians of each figure.

    Args:
        runs: Counted rounds; one uncounted round warms the page cache first.
        contestants: What to run, by name; each gets an empty folder.
        place: Where the folders are made; it must be on the disk that is to be measured.
    """
    found: dict[str, list[Figures]] = {name: [] for name in contestants}
    for number in range(runs + 1):
        for name, run in contestants.items():
            folder = Path(tempfile.mkdtemp(dir=place))
            try:
                figures = run(folder)
            finally:
                shutil.rmtree(folder)
            if number:
                found[name].append(figures)
    return {name: median(all_) for name, all_ in found.items()}


def median(rounds: list[Figures]) -> Figures:
    """The median of each figure over the rounds."""
    return {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}


def _run(command: list[str], cwd: Path) -> Figures:
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures
