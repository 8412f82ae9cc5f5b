"""`python -m tests.faults.table RECORDS`: the records of the fault lanes as one table.

Owns `tests/faults/RESULTS.md`, which `make soak` writes anew. The records come from `lanes`.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from tests.faults.lanes import Lane

RESULTS_PAGE = Path(__file__).with_name("RESULTS.md")
_HEAD = """# Fault lanes

Made by `make soak`, which fails if anything acknowledged was lost. What each lane does is said in its test;
what the figures mean for a program is in [durability](../../docs/durability.md#what-was-tested).

*Acknowledged* are events whose durability a `flush` had reported before a fault. *Lost* of these are gone or
other ones afterwards. *Unloadable* are sessions that do not load, cannot be written on, or do not verify
afterwards.
"""


def page(lanes: list[Lane]) -> str:
    """Return the page for the lanes of one run.

    Args:
        lanes: Their figures.
    """
    lanes = sorted(lanes, key=lambda lane: (lane.lane, lane.backend))
    real = [lane for lane in lanes if not lane.control and not lane.peer]
    control = [lane for lane in lanes if lane.control]
    peers = [lane for lane in lanes if lane.peer]
    faults, events = sum(lane.faults for lane in real), sum(lane.acknowledged for lane in real)
    lost, unloadable = sum(lane.lost for lane in real), sum(lane.unloadable for lane in real)
    totals = f"{faults:,} faults, {events:,} events acknowledged, {lost:,} lost, {unloadable:,} unloadable"
    where = f"Python {platform.python_version()}, {platform.system()} {platform.release().split('-')[0]}"
    return "\n".join(
        [
            _HEAD,
            f"{where}: **{totals}**.\n",
            *_table(real),
            "\n## Controls\n",
            "The same drills where what makes events durable was taken away. They must lose, or they show "
            "nothing.\n",
            *_table(control),
            "\n## Other session stores\n",
            "The same power cuts, and two processes that write one session at once, on the stores that the "
            "bench measures, in the versions it pins. The unit is a turn that the store said is stored.\n",
            *_table(peers),
            "",
        ]
    )


def _table(lanes: list[Lane]) -> list[str]:
    rows = [
        "| lane | backend | faults | acknowledged | lost | unloadable | |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    rows += [
        f"| {lane.lane} | {lane.backend} | {lane.faults:,} | {lane.acknowledged:,} | {lane.lost:,} "
        f"| {lane.unloadable:,} | {lane.note} |"
        for lane in lanes
    ]
    return rows


def main() -> None:
    """Read the records named on the command line and write the page."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    lanes = [Lane(**json.loads(line)) for line in lines]
    if not lanes:
        sys.exit("no lane has reported anything")
    RESULTS_PAGE.write_text(page(lanes), encoding="utf-8")
    print(f"{len(lanes)} lanes, written to tests/faults/RESULTS.md")


if __name__ == "__main__":
    main()
