"""Small projects on disk for the gate tests: a good tree per gate and its seeded violations."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, str | None]
"""Path to text; None takes the file away."""


def plant(root: Path, files: Files) -> Path:
    """Write, replace or remove files below `root` and return it."""
    for name, text in files.items():
        target = root / name
        if text is None:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return root


def git(root: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run git in `root`, away from the settings and the repository of whoever runs the tests."""
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    return subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *arguments],
        cwd=root,
        env=environment,
        check=check,
        capture_output=True,
        text=True,
    )


def record(
    title: str,
    status: str = "implemented",
    *,
    sections: tuple[str, ...] = ("Problem", "Decision", "Alternatives considered", "Consequences"),
    extra: str = "",
) -> str:
    """Return the text of a decision record; `extra` stands below the header."""
    body = "\n".join(f"## {name}\n\nText of {name.lower()}.\n" for name in sections)
    return f"# RFC: {title}\n\nStatus: {status}\n\n{extra}{body}"
