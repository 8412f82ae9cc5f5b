"""The lines a test run ends with: which backend can do what, what it passed, what it was excused from.

Owns the formatting only. It reads the properties that `ContractSuite` records on each report, so it
works with workers too. Call `print_summary` from `pytest_terminal_summary`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from turnlog.testing.capabilities import Capability
from turnlog.testing.suite import BACKEND_PROPERTY, CAPABILITIES_PROPERTY, WAIVER_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


@dataclass
class BackendRun:
    """What one run saw of one backend."""

    capabilities: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    waivers: dict[str, str] = field(default_factory=dict)


def collect(reports: Iterable[tuple[str, pytest.TestReport]]) -> dict[str, BackendRun]:
    """Group the reports of contract tests by backend.

    Args:
        reports: Outcome and report of every test.

    Returns:
        One entry per backend label, in order of first appearance.
    """
    runs: dict[str, BackendRun] = {}
    for outcome, report in reports:
        properties = dict(getattr(report, "user_properties", ()))
        backend = properties.get(BACKEND_PROPERTY)
        if backend is None:
            continue
        entry = runs.setdefault(str(backend), BackendRun())
        entry.capabilities.update(c for c in str(properties[CAPABILITIES_PROPERTY]).split(",") if c)
        entry.outcomes[outcome] += 1
        if WAIVER_PROPERTY in properties:
            entry.waivers[report.nodeid] = str(properties[WAIVER_PROPERTY])
    return runs


def summary_lines(runs: dict[str, BackendRun]) -> list[str]:
    """Format the table backend by capability, then the waivers.

    Args:
        runs: What `collect` returned.

    Returns:
        Lines without newlines; empty when no contract test ran.
    """
    if not runs:
        return []
    backends = list(runs)
    width = max(len(c) for c in Capability)
    columns = [max(len(b), 9) for b in backends]
    lines = ["  ".join(["".ljust(width), *(b.ljust(w) for b, w in zip(backends, columns, strict=True))])]
    for capability in Capability:
        cells = ["yes" if capability in runs[b].capabilities else "-" for b in backends]
        lines.append("  ".join([capability.ljust(width), *_cells(cells, columns)]))
    for outcome in ("passed", "skipped", "failed", "error"):
        cells = [str(runs[b].outcomes.get(outcome, 0)) for b in backends]
        lines.append("  ".join([outcome.ljust(width), *_cells(cells, columns)]))
    waivers = [(node, reason) for b in backends for node, reason in sorted(runs[b].waivers.items())]
    lines.append(f"waivers: {len(waivers)}")
    lines.extend(f"  {node}: {reason}" for node, reason in waivers)
    return [line.rstrip() for line in lines]


def print_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print capabilities, outcomes and waivers of every contract suite that ran.

    Args:
        terminalreporter: What pytest hands to `pytest_terminal_summary`.
    """
    counted = [
        (outcome, report)
        for outcome in ("passed", "skipped", "failed", "error")
        for report in terminalreporter.stats.get(outcome, [])
    ]
    lines = summary_lines(collect(counted))
    if lines:
        terminalreporter.section("contract suites")
        for line in lines:
            terminalreporter.write_line(line)


def _cells(cells: list[str], columns: list[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(cells, columns, strict=True)]
