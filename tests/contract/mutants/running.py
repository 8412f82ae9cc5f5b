"""Runs named contract tests on wrong backends in a pytest of their own, where failures are expected."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

CONTROL = "TestNothingWrong"
"""The suite over the right backend, which every file of suites has."""

HARMLESS = "test_a_created_session_leaves_nothing"
"""A test that no fault here touches: a mutant that fails it, too, is broken rather than wrong in one way."""

Outcomes = dict[tuple[str, str], str]


def run_named(suites: Path, caught_by: Mapping[str, Sequence[str]], report: Path) -> Outcomes:
    """Run the named tests once.

    Args:
        suites: The file with the suites.
        caught_by: Which tests must fail on which wrong backend.
        report: Where the report goes.

    Returns:
        `passed`, `failure`, `error` or `skipped` by suite and test.
    """
    tests = sorted({name for names in caught_by.values() for name in names})
    wanted = [f"{CONTROL}::{name}" for name in tests]
    wanted += [f"{suite}::{name}" for suite, names in caught_by.items() for name in (*names, HARMLESS)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [f"{suites}::{name}" for name in wanted]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-4000:] + done.stderr[-4000:]
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        suite = case.get("classname", "").rpartition(".")[2]
        found[suite, case.get("name", "")] = next(
            (kind for kind in ("failure", "error", "skipped") if kind in kinds), "passed"
        )
    return found
