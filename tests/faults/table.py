"""`python -m tests.faults.table RECORDS`: the records of the fault lanes as tables.

Owns `tests/faults/RESULTS.md` and the sums in `docs/durability.md`, which `make soak` writes anew. The
records come from `lanes`.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from tests.faults.lanes import Lane

RESULTS_PAGE = Path(__file__).with_name("RESULTS.md")
DURABILITY_PAGE = Path(__file__).parents[2] / "docs" / "durability.md"
BEGIN, END = "<!-- figures of make soak -->", "<!-- end of the figures -->"
"""What stands around the sums in the page about durability."""

_HEAD = """# Fault lanes

Made by `make soak`, which fails if anything acknowledged was lost. What each lane does is said in its test;
what the figures mean for a program is in [durability](../../docs/durability.md#what-was-tested).

*Acknowledged* are events whose durability a `flush` had reported before a fault. *Lost* of these are gone or
other ones afterwards. *Unloadable* are sessions that do not load, cannot be written on, or do not verify
afterwards.
"""
_SHORT = {"jsonl": "jsonl none", "jsonl-zstd": "jsonl zstd"}
"""Other names of backends, as tests over every kind of store have them."""
_FAMILIES = {"jsonl none": "JSONL, plain", "jsonl zstd": "JSONL, zstd", "sqlite": "SQLite"}
_COPIES = "copies between them"


def page(lanes: list[Lane]) -> str:
    """Return the page for the lanes of one run.

    Args:
        lanes: Their figures.
    """
    lanes = sorted(lanes, key=lambda lane: (lane.lane, _backend(lane)))
    real = [lane for lane in lanes if not lane.control and not lane.peer]
    control = [lane for lane in lanes if lane.control]
    peers = [lane for lane in lanes if lane.peer]
    return "\n".join(
        [
            _HEAD,
            *sums(real),
            "\n## Lanes\n",
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


def sums(real: list[Lane]) -> list[str]:
    """Return the sums by backend, as lines.

    Args:
        real: The lanes that hold turnlog to its promises.
    """
    families: dict[str, list[Lane]] = {}
    for lane in real:
        families.setdefault(_family(_backend(lane)), []).append(lane)
    rows = [
        "| backend | lanes | faults | acknowledged | lost | unloadable |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    order = [*_FAMILIES.values(), "PostgreSQL", _COPIES]
    for name in [*(name for name in order if name in families), "all"]:
        of = real if name == "all" else families[name]
        rows.append(
            f"| {name} | {len(of)} | {sum(lane.faults for lane in of):,} "
            f"| {sum(lane.acknowledged for lane in of):,} | {sum(lane.lost for lane in of):,} "
            f"| {sum(lane.unloadable for lane in of):,} |"
        )
    where = f"Python {platform.python_version()}, {platform.system()} {platform.release().split('-')[0]}"
    return [f"One run of `make soak` with {where}:\n", *rows]


def _backend(lane: Lane) -> str:
    return _SHORT.get(lane.backend, lane.backend)


def _family(backend: str) -> str:
    if " to " in backend or "→" in backend:
        return _COPIES
    return _FAMILIES.get(backend, "PostgreSQL")


def _table(lanes: list[Lane]) -> list[str]:
    rows = [
        "| lane | backend | faults | acknowledged | lost | unloadable | |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    rows += [
        f"| {lane.lane} | {_backend(lane)} | {lane.faults:,} | {lane.acknowledged:,} | {lane.lost:,} "
        f"| {lane.unloadable:,} | {lane.note} |"
        for lane in lanes
    ]
    return rows


def with_sums(text: str, lines: list[str]) -> str:
    """Return a page with other sums between its marks.

    Args:
        text: The page; has both marks once.
        lines: The sums.
    """
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}"


def main() -> None:
    """Read the records named on the command line and write both pages."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    lanes = [Lane(**json.loads(line)) for line in lines]
    if not lanes:
        sys.exit("no lane has reported anything")
    RESULTS_PAGE.write_text(page(lanes), encoding="utf-8")
    real = [lane for lane in lanes if not lane.control and not lane.peer]
    durability = DURABILITY_PAGE.read_text(encoding="utf-8")
    DURABILITY_PAGE.write_text(with_sums(durability, sums(real)), encoding="utf-8")
    print(f"{len(lanes)} lanes, written to tests/faults/RESULTS.md and docs/durability.md")


if __name__ == "__main__":
    main()
