"""Ways to run the command line: in this process, and as a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.logs import Cli, Result, command
from turnlog.cli.main import main


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, root: Path) -> Cli:
    """Run the command line in this process, on the store of the test."""
    monkeypatch.setenv("TURNLOG_STORE", f"jsonl:{root}")

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run


@pytest.fixture
def process(root: Path) -> Cli:
    """Run the command line as a process of its own, on the store of the test."""

    def run(*arguments: object, env: dict[str, str] | None = None) -> Result:
        done = subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            env={**os.environ, "TURNLOG_STORE": f"jsonl:{root}", **(env or {})},
            timeout=60,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return where the test's store is; nothing is there yet."""
    return tmp_path / "store"
