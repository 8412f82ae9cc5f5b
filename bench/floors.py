"""The floor under a durable append: the same write and sync, bare and through one thread hop.

Owns both floors. Usage: python -m bench.floors FILE EVENTS
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RECORD = b'{"type":"feedback/record","seq":1000,"time":1700000000000,"data":{"text":"' + b"x" * 60 + b'"}}\n'


def bare(path: Path, events: int) -> list[float]:
    """Seconds per write + fdatasync on the calling thread."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    times = []
    for _ in range(events):
        since = time.perf_counter()
        os.write(fd, RECORD)
        os.fdatasync(fd)
        times.append(time.perf_counter() - since)
    os.close(fd)
    return times


async def hopped(path: Path, events: int) -> list[float]:
    """Seconds per write + fdatasync on a worker thread, awaited from the loop."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    loop = asyncio.get_running_loop()

    def once() -> None:
        os.write(fd, RECORD)
        os.fdatasync(fd)

    times = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(events):
            since = time.perf_counter()
            await loop.run_in_executor(pool, once)
            times.append(time.perf_counter() - since)
    os.close(fd)
    return times


def main() -> None:
    """Measure both and print the medians as JSON."""
    path, events = Path(sys.argv[1]), int(sys.argv[2])
    found = {}
    for name, times in (("bare_s", bare(path, events)), ("hop_s", asyncio.run(hopped(path, events)))):
        found[name] = sorted(times)[len(times) // 2]
    path.unlink()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
