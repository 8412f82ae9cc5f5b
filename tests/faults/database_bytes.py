"""Which bytes of a SQLite database mean something, and to which table they belong.

Owns reading the pages of a small database in which every table and index is one page. It changes nothing.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

HEAD: Final = "file header"
FREE: Final = "free space"
SCHEMA: Final = "schema"
_HEAD_BYTES: Final = 100
_LEAVES: Final = (0x0A, 0x0D)
"""Page types: the leaf of an index, the leaf of a table."""


def bytes_by_owner(path: Path) -> dict[str, list[int]]:
    """Sort every byte of a database by what it belongs to.

    Args:
        path: A database without a write-ahead log, none of whose trees has more than one page.

    Returns:
        Offsets by table or index; by `HEAD`, `SCHEMA` and `FREE` for the rest of the file.
    """
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        [size] = db.execute("pragma page_size").fetchone()
        roots = dict(db.execute("select rootpage, name from sqlite_master where rootpage").fetchall())
    finally:
        db.close()
    data = path.read_bytes()
    assert len(data) == size * (len(roots) + 1), "a tree has more than one page, or a page is free"
    owners: dict[str, list[int]] = {HEAD: list(range(_HEAD_BYTES)), FREE: []}
    for page, name in {1: SCHEMA, **roots}.items():
        begin = (page - 1) * size
        own = begin + (_HEAD_BYTES if page == 1 else 0)
        assert data[own] in _LEAVES, f"{name} has more than one page"
        cells = int.from_bytes(data[own + 3 : own + 5], "big")
        content = begin + int.from_bytes(data[own + 5 : own + 7], "big")
        pointers = own + 8 + 2 * cells
        owners[name] = [*range(own, pointers), *range(content, begin + size)]
        owners[FREE] += range(pointers, content)
    return owners
