"""The project's own wiring: pins, targets, services, and that a broken layer is really refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.faults.lanes import need

PROJECT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def normal(name: str) -> str:
    """Return a distribution's name in the one spelling that compares."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_requirement_has_an_exact_pin() -> None:
    """Constraints are names and exact versions, and cover the core and every extra."""
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([\w.-]+)==[\w.]+", line) for line in lines if not line.startswith("#")]
    assert all(pins)
    pinned = {normal(pin[1]) for pin in pins if pin}
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    wanted = [*PYPROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]
    names = {normal(re.split(r"[\[<>=;\s]", line)[0]) for line in wanted} - {"turnlog"}
    assert names - pinned == set()


def test_help_lists_every_target() -> None:
    """`make help` names each target that a person may call."""
    need(shutil.which("make") is not None, "make is missing; apt-get install make")
    text = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = next(line for line in text.splitlines() if line.startswith(".PHONY:")).split()[1:]
    command = ["make", "--no-print-directory", "help"]  # a make inside of a make would announce its folders
    shown = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert [line.split()[1] for line in shown.splitlines()] == targets


def services(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the services script where nothing can be found and nothing can be installed."""
    for program in ("sh", "dirname"):
        found = shutil.which(program)
        assert found
        (tmp_path / program).symlink_to(found)
    return subprocess.run(
        ["sh", str(PROJECT / "tools/services.sh")],
        env={"PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_missing_service_is_named_and_skipped(tmp_path: Path) -> None:
    """Away from CI a missing program is named, and the tests go on without it."""
    done = services(tmp_path)
    assert done.returncode == 0
    assert "strace" in done.stderr


def test_missing_service_fails_ci(tmp_path: Path) -> None:
    """Under CI a missing program is a failure and not a silent skip."""
    done = services(tmp_path, CI="true")
    assert done.returncode == 1
    assert "missing under CI" in done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with its layer contracts."""
    root = tmp_path_factory.mktemp("layers")
    shutil.copytree(PROJECT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "pyproject.toml", root)
    return root


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("backends/memory.py", "import turnlog.persistence.coordinator", "A backend sees the hooks"),
        ("session/repair.py", "import asyncio", "do no I/O"),
        ("events/lossless.py", "import turnlog.session.repair", "Layers, top to bottom"),
        ("opening.py", "import rich", "Only the command line"),
    ],
)
def test_broken_layer_is_refused(source: Path, module: str, line: str, broken: str) -> None:
    """An import against the layers breaks the contract that forbids it."""
    target = source / "src/turnlog" / module
    text = target.read_text(encoding="utf-8")
    target.write_text(text + f"\n{line}\n", encoding="utf-8")
    try:
        done = subprocess.run(
            [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
            cwd=source,
            env={**os.environ, "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        target.write_text(text, encoding="utf-8")
    assert done.returncode == 1
    assert re.search(rf"{broken}.* BROKEN", done.stdout)
    assert done.stdout.count(" BROKEN") == 1
