"""Real media that fail: a small file system that runs full, and a folder that cannot be written.

Owns mounting and unmounting. A test is skipped where mounting is not allowed and no other way is left.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.lanes import need


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"mounting is not allowed here: {done.stderr.strip()}")


@contextmanager
def small_file_system(place: Path, size: str) -> Iterator[Path]:
    """Mount an empty file system in memory.

    Args:
        place: A folder, made if it is not there.
        size: As mount takes it, for example `256k`.

    Yields:
        The folder.
    """
    place.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill_up(ballast: Path) -> None:
    """Write a file until its file system has no room left."""
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(fd, bytes(4096))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        os.close(fd)


@contextmanager
def unwritable(folder: Path, view: Path) -> Iterator[Path]:
    """Show a folder so that nothing in it can be written; the folder itself stays writable for root.

    Args:
        folder: The folder.
        view: A place for the view, where one is needed.

    Yields:
        The folder as it cannot be written.
    """
    if os.geteuid() != 0:
        mode = folder.stat().st_mode
        folder.chmod(0o500)
        try:
            yield folder
        finally:
            folder.chmod(mode)
        return
    view.mkdir()
    _mount("--bind", str(folder), str(view))
    try:
        _mount("-o", "remount,bind,ro", str(view))
        yield view
    finally:
        subprocess.run(["umount", "-l", str(view)], check=True)
