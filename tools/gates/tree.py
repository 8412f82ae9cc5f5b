"""The project a gate looks at: its files, their text and its `[tool.gates]` settings.

Files are what git tracks or would track; without git, everything but hidden and built folders.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "build", "dist", "venv"})


class Tree:
    """One project on disk, read once."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._texts: dict[str, str | None] = {}

    @cached_property
    def settings(self) -> dict[str, Any]:
        """`gates.toml` in the root, else `[tool.gates]` of its pyproject.toml, else nothing."""
        own = self.root / "gates.toml"
        if own.is_file():
            return tomllib.loads(own.read_text(encoding="utf-8"))
        project = self.root / "pyproject.toml"
        if project.is_file():
            tables = tomllib.loads(project.read_text(encoding="utf-8"))
            settings = tables.get("tool", {}).get("gates", {})
            return settings if isinstance(settings, dict) else {}
        return {}

    def section(self, name: str) -> dict[str, Any]:
        """Return the settings of one gate, empty when it has none."""
        value = self.settings.get(name, {})
        return value if isinstance(value, dict) else {}

    @cached_property
    def files(self) -> list[str]:
        """Every file of the project, sorted, relative to the root, with `/`."""
        listed = _git_files(self.root)
        names = _walk(self.root) if listed is None else listed
        return sorted(name for name in names if (self.root / name).is_file())

    @cached_property
    def file_set(self) -> frozenset[str]:
        """The same files for membership tests."""
        return frozenset(self.files)

    @cached_property
    def folders(self) -> frozenset[str]:
        """Every folder that holds a file of the project; the root is the empty string."""
        found = {""}
        for name in self.files:
            parent = name.rpartition("/")[0]
            while parent and parent not in found:
                found.add(parent)
                parent = parent.rpartition("/")[0]
        return frozenset(found)

    def under(self, folder: str) -> list[str]:
        """Return the files below `folder`, sorted."""
        prefix = folder.rstrip("/") + "/"
        return [name for name in self.files if name.startswith(prefix)]

    def select(self, include: list[str], exclude: list[str] | None = None) -> list[str]:
        """Return the files that match a pattern of `include` and none of `exclude`.

        Args:
            include: Glob patterns over the whole relative path; `**` crosses folders.
            exclude: Patterns taken away again.
        """
        without = exclude or []
        return [name for name in self.files if matches(name, include) and not matches(name, without)]

    def text(self, name: str) -> str:
        """Return a file's text, empty for a binary file.

        Raises:
            FileNotFoundError: The project has no such file.
        """
        if name not in self._texts:
            raw = (self.root / name).read_bytes()
            self._texts[name] = None if b"\0" in raw[:4096] else raw.decode("utf-8", "replace")
        return self._texts[name] or ""

    def raw(self, name: str) -> bytes:
        """Return a file's bytes."""
        return (self.root / name).read_bytes()


def matches(name: str, patterns: list[str]) -> bool:
    """Tell whether a relative path matches one of the glob patterns."""
    return any(_compile(pattern).fullmatch(name) for pattern in patterns)


@lru_cache(maxsize=512)
def _compile(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wild.get(part, re.escape(part)) for part in parts))


def _git_files(root: Path) -> list[str] | None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    if done.returncode != 0:
        return None
    return [name.decode("utf-8", "surrogateescape") for name in done.stdout.split(b"\0") if name]


def _walk(root: Path) -> list[str]:
    found: list[str] = []
    pending = [root]
    while pending:
        for entry in pending.pop().iterdir():
            hidden = entry.name.startswith(".") and entry.name not in {".ci", ".github", ".gitattributes"}
            if hidden or entry.name in _SKIPPED_FOLDERS:
                continue
            if entry.is_dir() and not entry.is_symlink():
                pending.append(entry)
            elif entry.is_file():
                found.append(entry.relative_to(root).as_posix())
    return found
