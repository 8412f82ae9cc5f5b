"""Runs the fences of a page the way a reader would: in order, in one fresh folder, with the real programs.

`python` is a program of its own; `python await` fences are one program, as at `python -m asyncio`'s prompt;
`console` runs its `$ turnlog` lines. An `output` fence holds what the fence before it prints.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.gates.markdown import Fence, Page

PROJECT = Path(__file__).parents[2]
KNOWN = frozenset({"python", "console", "output", "sh", "json", "text", "md", "toml", ""})
"""Languages whose treatment is decided; another one has to be decided here first."""
_MARK = "\x1e"
_ASYNC_DRIVER = """\
import ast, asyncio, inspect, sys, types
scope = {"__name__": "__main__"}
async def main():
    for source in sys.stdin.read().split("\\x1e"):
        code = compile(source, "<page>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = types.FunctionType(code, scope)()
        if inspect.isawaitable(result):
            await result
        print("\\x1e", end="", flush=True)
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One fence that does not do what the page says."""

    line: int
    reason: str


def run_page(text: str, folder: Path) -> list[Mismatch]:
    """Run a page's fences in `folder` and return what is not as the page says.

    Args:
        text: The page.
        folder: An empty folder; it becomes the working and the home folder.
    """
    fences = Page(text).fences
    found: list[Mismatch] = []
    together = [fence for fence in fences if fence.info == "python await"]
    printed: dict[int, str] = {}
    for number, fence in enumerate(fences):
        if together and fence is together[0]:
            printed = _run_together(together, folder, found)
        output = printed.get(fence.line)
        if output is None:
            output = _run_fence(fence, folder, found)
        after = fences[number + 1] if number + 1 < len(fences) else None
        wanted = after.body if after is not None and after.info == "output" else ""
        if output is not None and not same(wanted, output):
            found.append(Mismatch(fence.line, f"printed {output!r}, the page says {wanted!r}"))
    return found


def _run_fence(fence: Fence, folder: Path, found: list[Mismatch]) -> str | None:
    """Run or check one fence that stands alone; return what a program printed."""
    language, _, options = fence.info.partition(" ")
    if language not in KNOWN:
        found.append(Mismatch(fence.line, f"nobody decided what to do with {language!r} fences"))
    elif language == "python" and not options:
        return _run_program(fence, folder, found)
    elif language == "python" and options != "await" and not options.startswith("type-of="):
        found.append(Mismatch(fence.line, f"a python fence must run; {options!r} is not known"))
    elif language == "console":
        found += _run_console(fence, folder)
    elif language == "json":
        found += _check_json(fence)
    return None


def same(wanted: str, output: str) -> bool:
    """Compare output with what a page shows, where `...` stands for any text within a line."""
    pattern = re.escape(wanted).replace(re.escape("..."), "[^\n]*")
    return re.fullmatch(pattern, output) is not None


def _environment(folder: Path) -> dict[str, str]:
    beside = str(Path(sys.executable).parent)
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("TURNLOG_", "COV"))}
    return {**keep, "HOME": str(folder), "PATH": f"{beside}:{os.environ['PATH']}", "NO_COLOR": "1"}


def _run(arguments: list[str], folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, cwd=folder, env=_environment(folder), input=stdin, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def _run_together(fences: list[Fence], folder: Path, found: list[Mismatch]) -> dict[int, str]:
    """Run the fences as one program; return what each printed, by line, as far as the program came."""
    source = _MARK.join(fence.body for fence in fences)
    done = _run([sys.executable, "-W", "error", "-c", _ASYNC_DRIVER], folder, source)
    parts = done.stdout.split(_MARK)[:-1]
    if done.returncode or done.stderr:
        line = fences[min(len(parts), len(fences) - 1)].line
        found.append(Mismatch(line, f"exit code {done.returncode}\n{done.stderr}"))
    return {fence.line: part for fence, part in zip(fences, parts, strict=False)}


def _run_program(fence: Fence, folder: Path, found: list[Mismatch]) -> str | None:
    done = _run([sys.executable, "-W", "error", "-c", fence.body], folder)
    if done.returncode or done.stderr:
        found.append(Mismatch(fence.line, f"exit code {done.returncode}\n{done.stderr}"))
        return None
    return done.stdout


def _run_console(fence: Fence, folder: Path) -> list[Mismatch]:
    found = []
    for part in re.split(r"^\$ ", fence.body, flags=re.MULTILINE)[1:]:
        command, _, wanted = part.partition("\n")
        arguments = shlex.split(command)
        if arguments[0] != "turnlog":
            found.append(Mismatch(fence.line, f"only turnlog runs in a console fence, not {arguments[0]!r}"))
            continue
        done = _run([sys.executable, "-m", "turnlog.cli", *arguments[1:]], folder)
        if not same(wanted, done.stdout + done.stderr):
            found.append(Mismatch(fence.line, f"{command} printed {done.stdout + done.stderr!r}"))
    return found


def _check_json(fence: Fence) -> list[Mismatch]:
    try:
        json.loads(fence.body)
    except ValueError as error:
        return [Mismatch(fence.line, f"is not JSON: {error}")]
    return []
