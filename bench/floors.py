"""The floor under a durable append: the same write and sync, bare and through one thread hop.

Owns both floors, one write at a time, so that a job can measure them between its own flushes: what else runs
on the machine then weighs on all alike.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RECORD = b'{"type":"feedback/record","seq":1000,"time":1700000000000,"data":{"text":"' + b"x" * 60 + b'"}}\n'


class Floors:
    """Two files that are written and synced as a log would be.

    Args:
        folder: Where the files are made; it must be on the disk that is measured.
    """

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._bare, self._hop = (os.open(folder / name, flags, 0o600) for name in ("bare", "hop"))
        self._pool = ThreadPoolExecutor(1)

    def bare(self) -> float:
        """Return the seconds of one write + fdatasync on the calling thread."""
        since = time.perf_counter()
        _write(self._bare)
        return time.perf_counter() - since

    async def hop(self) -> float:
        """Return the seconds of one write + fdatasync on a worker thread, awaited from the loop."""
        loop = asyncio.get_running_loop()
        since = time.perf_counter()
        await loop.run_in_executor(self._pool, _write, self._hop)
        return time.perf_counter() - since

    def close(self) -> None:
        """Close the files and end the thread."""
        self._pool.shutdown()
        os.close(self._bare)
        os.close(self._hop)


def _write(fd: int) -> None:
    os.write(fd, RECORD)
    os.fdatasync(fd)
