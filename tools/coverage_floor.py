"""Holds the packages that must have full branch coverage to it.

`coverage_floor.py --run` runs the in-process tests under coverage and then judges; without it, the data of an
earlier run is judged. Prints one line per package and names what is not covered.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FLOORS = {"events": 100.0, "session": 100.0, "persistence": 100.0, "backends": 100.0}
"""Percent of lines and branches that each package must reach."""
LANES = ("tests/unit", "tests/contract", "tests/property", "tests/corpus", "tests/faults")
"""Tests that exercise the packages in their own process, where coverage sees every line."""
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Share:
    """How much of one package is covered."""

    covered: int
    """Lines and branches that were taken."""
    total: int
    missing: tuple[str, ...]
    """`file: lines` of what was not."""

    @property
    def percent(self) -> float:
        """Covered lines and branches in percent; a package without code is covered."""
        return 100.0 * self.covered / self.total if self.total else 100.0


def shares(report: dict[str, Any], packages: list[str]) -> dict[str, Share]:
    """Sum coverage's JSON report by package.

    Args:
        report: What `coverage json` wrote, with branches.
        packages: Names of packages directly below `src/turnlog`.
    """
    found = {}
    for package in packages:
        prefix = f"src/turnlog/{package}/"
        files = {name: value for name, value in report["files"].items() if name.startswith(prefix)}
        covered = total = 0
        missing = []
        for name, value in sorted(files.items()):
            summary = value["summary"]
            covered += summary["covered_lines"] + summary.get("covered_branches", 0)
            total += summary["num_statements"] + summary.get("num_branches", 0)
            gaps = [str(line) for line in value["missing_lines"]]
            gaps += [f"{a}->{b}" for a, b in value.get("missing_branches", [])]
            if gaps:
                missing.append(f"{name}: {', '.join(gaps)}")
        found[package] = Share(covered, total, tuple(missing))
    return found


def judge(found: dict[str, Share], floors: dict[str, float]) -> list[str]:
    """Return the packages that stay below their floor; one that was never measured is below it."""
    return [name for name, floor in floors.items() if not found[name].total or found[name].percent < floor]


def main(argv: list[str] | None = None) -> int:
    """Run and judge; return 1 when tests fail or a package is below its floor."""
    parser = argparse.ArgumentParser(description="Hold packages to their coverage.")
    parser.add_argument("--run", action="store_true", help="run the in-process tests first")
    parser.add_argument("--workers", default="2", help="test processes")
    options = parser.parse_args(argv)
    coverage = [sys.executable, "-m", "coverage"]
    if options.run:
        lanes = [lane for lane in LANES if Path(lane).is_dir()]
        subprocess.run([*coverage, "erase"], check=True)
        tests = subprocess.run(
            [*coverage, "run", "-m", "pytest", "-q", "-n", options.workers, *lanes], check=False
        )
        if tests.returncode:
            return 1
    # Fails without harm when the data was combined before.
    subprocess.run([*coverage, "combine", "--quiet"], check=False, capture_output=True)
    report = subprocess.run([*coverage, "json", "-q", "-o", "-"], check=True, capture_output=True, text=True)
    found = shares(json.loads(report.stdout), list(FLOORS))
    for name, share in found.items():
        print(f"{name:12} {share.percent:6.2f} %  of {share.total} lines and branches")
        for line in share.missing[:_SHOWN]:
            print(f"             {line}")
    below = judge(found, FLOORS)
    if below:
        print(f"below the floor: {', '.join(below)}")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
