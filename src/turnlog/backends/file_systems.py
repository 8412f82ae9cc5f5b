"""Which file system a path is on, from the table of mounts; shared by the backends that keep files.

Owns that one question. What a type means for a backend is the backend's business.
"""

from __future__ import annotations

import os
import re


def file_system_type(path: str, mounts: str) -> str | None:
    """Return the type of the file system that holds `path`, or None where no table of mounts is."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return None  # not Linux, or no proc: nothing is known, and nothing is claimed
    wanted = os.path.join(os.path.realpath(path), "")
    best: tuple[int, str] | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        if wanted.startswith(os.path.join(point, "")) and (best is None or len(point) >= best[0]):
            best = (len(point), after.split(" ")[0])
    return None if best is None else best[1]
