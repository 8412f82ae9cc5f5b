"""Where the recorded behaviour of the original lies, and how its case files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def read(name: str) -> dict[str, Any]:
    """Read one case file.

    Args:
        name: Path under the data folder, for example `invalid/append.json`.
    """
    found: dict[str, Any] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return found


def names(folder: str) -> list[str]:
    """List the case files of a folder, sorted."""
    return sorted(f"{folder}/{path.name}" for path in (DATA / folder).glob("*.json"))
