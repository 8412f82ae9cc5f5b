"""`python -m tools.pictures [--check]`: pictures for the README, drawn from what the programs really print.

Owns `docs/images`. The README's first program runs and is killed; the commands then run on a terminal of
their own. Only the time of day is replaced, so that a picture changes when the output does.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tools.gates.markdown import Page

PROJECT = Path(__file__).parents[1]
IMAGES = PROJECT / "docs" / "images"
COLUMNS = 84
"""Width of the terminal in a picture."""

_STORE = "jsonl:sessions?compression=none"
_PICTURES = {
    "interrupted.svg": ("turnlog show s-1", "turnlog repair s-1", "turnlog show s-1"),
}
"""The commands in each picture, in order, after the README's first program was killed."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> int:
    """Draw every picture; with `--check` only tell whether one is out of date."""
    stale = []
    for name, commands in _PICTURES.items():
        drawn, place = draw(name.removesuffix(".svg"), commands), IMAGES / name
        if "--check" not in sys.argv:
            place.parent.mkdir(exist_ok=True)
            place.write_text(drawn, encoding="utf-8")
            print(f"docs/images/{name}")
        elif not place.exists() or place.read_text(encoding="utf-8") != drawn:
            stale.append(name)
    for name in stale:
        print(f"docs/images/{name} is not what the commands print; run python -m tools.pictures")
    return 1 if stale else 0


def draw(name: str, commands: tuple[str, ...]) -> str:
    """Return one picture.

    Args:
        name: Distinguishes the styles of several pictures on a page.
        commands: What is typed; each begins with `turnlog`.
    """
    with tempfile.TemporaryDirectory() as folder:
        _record(Path(folder))
        shown = "".join(f"\x1b[1;32m$\x1b[0m {line}\n{_output(line, Path(folder))}\n" for line in commands)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(_MOMENT.sub("2026-01-01 09:00:00", shown.rstrip("\n"))), soft_wrap=True)
    drawing = console.export_svg(title="turnlog", theme=MONOKAI, unique_id=name)
    drawing = _FONTS.sub("", drawing)  # which load from elsewhere; a reader's own fonts do
    return "\n".join(line.rstrip() for line in drawing.splitlines()) + "\n"


def _record(folder: Path) -> None:
    """Run the README's first program, which kills its agent in the middle of a tool call."""
    program = Page((PROJECT / "README.md").read_text("utf-8")).fences[0]
    source = program.body.replace('"jsonl:sessions"', repr(_STORE))
    subprocess.run([sys.executable, "-c", source], cwd=folder, check=True)


def _output(line: str, folder: Path) -> str:
    """Run a command on a terminal of its own and return what it prints there."""
    command = [str(Path(sys.executable).with_name("turnlog")), *shlex.split(line)[1:]]
    keep = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    env = {**keep, "TURNLOG_STORE": _STORE, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "TZ": "UTC"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        text = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{line} ended with {process.returncode}: {text.decode()}")
    return text.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how a terminal says that its last user has gone
        return b""


if __name__ == "__main__":
    sys.exit(main())
