"""What every fault lane reports: how many faults, how many events were acknowledged, lost and unloadable.

Owns the line that a lane prints and the record that `make soak` turns into a table. It injects nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NoReturn

import pytest

SOAK = bool(os.environ.get("TURNLOG_SOAK"))
"""Whether the lanes run in their long form."""
RESULTS = os.environ.get("TURNLOG_FAULT_RESULTS")
"""File to which each lane appends its record, or None."""


@dataclass(slots=True)
class Lane:
    """The figures of one lane on one backend."""

    lane: str
    backend: str
    faults: int = 0
    """Faults that were really injected."""
    acknowledged: int = 0
    """Events whose durability was acknowledged before a fault, over all rounds."""
    lost: int = 0
    """Of these, the ones that were gone afterwards."""
    unloadable: int = 0
    """Sessions that could not be loaded afterwards."""
    control: bool = False
    """Whether events must be lost here, because what makes them durable was taken away."""
    note: str = ""
    peer: bool = False
    """Whether this is another program's store, measured and held to nothing."""

    def line(self) -> str:
        """Return the figures on one line."""
        what = "control, must lose" if self.control else "lost"
        text = (
            f"{self.lane} · {self.backend}: {self.faults:,} faults, {self.acknowledged:,} acknowledged, "
            f"{self.lost:,} {what}, {self.unloadable:,} unloadable"
        )
        return f"{text} ({self.note})" if self.note else text


@contextmanager
def lane(
    name: str,
    backend: str,
    capsys: pytest.CaptureFixture[str],
    *,
    control: bool = False,
    damages: bool = False,
    peer: bool = False,
) -> Iterator[Lane]:
    """Count one lane; print and record it at the end, and hold it to its promise.

    Args:
        name: The lane.
        backend: The backend under it.
        capsys: Lets the line through to the terminal.
        control: Whether losing events is what is expected.
        damages: Whether the fault may damage a log so that it has to be salvaged.
        peer: Whether it is another program's store, which is held to nothing.
    """
    figures = Lane(name, backend, control=control, peer=peer)
    yield figures
    with capsys.disabled():
        print(f"\n  {figures.line()}")
    if RESULTS:
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(figures)) + "\n")
    assert figures.faults > 0, "no fault was injected, so nothing was shown"
    if peer:
        return
    assert (figures.lost > 0) == control, (
        "the control lost nothing" if control else "acknowledged events are lost"
    )
    assert control or damages or figures.unloadable == 0, "a session cannot be loaded"


def report(
    name: str,
    backend: str,
    capsys: pytest.CaptureFixture[str],
    *,
    faults: int,
    acknowledged: int,
    note: str = "",
) -> None:
    """Print and record a lane that has checked for itself that nothing was lost.

    Args:
        name: The lane.
        backend: The backend under it.
        capsys: Lets the line through to the terminal.
        faults: How many faults were injected.
        acknowledged: Events acknowledged before them.
        note: What else there is to say.
    """
    with lane(name, backend, capsys) as figures:
        figures.faults, figures.acknowledged, figures.note = faults, acknowledged, note


def missing(what: str) -> NoReturn:
    """Skip a test that needs something which is not here; under CI that is a failure.

    Args:
        what: What is missing, and how to get it.
    """
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def need(condition: bool, what: str) -> None:
    """Skip a lane that cannot run here; fail it in CI.

    Args:
        condition: Whether it can run.
        what: As in `missing`.
    """
    if not condition:
        missing(what)
