"""Runs outside checkers (`[tool.gates.commands]`) and turns what they print into findings.

A command is `{ run = ["ruff", "check"], mend = "..." }`; lines `file:line[:column]: text` become rows.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from .finding import Finding
from .tree import Tree

_LINE = re.compile(r"^(?:Error: )?([\w./-]+\.\w+):(\d+)(?::\d+)?:\s*(.*)$")
_CODE = re.compile(r"^([A-Z]+\d+)\b|\[([a-z][\w-]+)\]$")
_TAIL_LINES = 20


def declared(tree: Tree) -> dict[str, dict[str, Any]]:
    """Return the commands of the project's settings by name."""
    return {name: value for name, value in tree.section("commands").items() if isinstance(value, dict)}


def run(tree: Tree, name: str) -> list[Finding]:
    """Run one declared command in the project's root and return its findings, empty when it passed."""
    spec = declared(tree)[name]
    argv = [str(part) for part in spec["run"]]
    mend = str(spec.get("mend", f"run `{' '.join(argv)}`"))
    program = _find(tree.root, argv[0])
    if program is None:
        return [Finding(argv[0], 0, "missing", "is not installed", "run `make setup`")]
    clean = {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "CLICOLOR_FORCE"}}
    done = subprocess.run(
        [program, *argv[1:]], cwd=tree.root, capture_output=True, text=True, check=False,
        env={**clean, "NO_COLOR": "1"},
    )  # fmt: skip
    if done.returncode == 0:
        return []
    output = (done.stdout + done.stderr).splitlines()
    found = [finding for line in output if (finding := _row(line, mend))]
    if found:
        return found
    tail = "\n".join(line for line in output if line.strip()).splitlines()[-_TAIL_LINES:]
    return [Finding(name, 0, "failed", "\n".join(tail) or f"exit code {done.returncode}", mend)]


def _find(root: Path, program: str) -> str | None:
    """Find a program beside this Python, in the project's `.venv`, or on the path."""
    folders = (Path(sys.executable).parent, root / ".venv" / "bin")
    found = (str(folder / program) for folder in folders if (folder / program).is_file())
    return next(found, None) or shutil.which(program)


def _row(line: str, mend: str) -> Finding | None:
    match = _LINE.match(line)
    if not match or match[3].startswith("note:"):
        return None
    code = _CODE.search(match[3].rstrip())
    rule = (code[1] or code[2]) if code else "error"
    return Finding(match[1], int(match[2]), rule, match[3], mend)
