"""The power-loss file system as tests use it: mount, cut the power, unmount.

Owns the process that serves it. What survives is `power_loss_fs`'s business.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.lanes import need

_PROGRAM = Path(__file__).with_name("power_loss_fs.py")


class PowerLossMount:
    """A mounted file system that forgets what was not synced.

    Args:
        place: The mount point.
    """

    def __init__(self, place: Path) -> None:
        self.place = place

    def cut(self, seed: int | None = None, *, scattered: bool = False) -> None:
        """Cut the power: everything that was not synced is gone. Nobody may have a file open.

        Args:
            seed: Let a random part of it, block by block and name by name, have reached the disk; None lets
                nothing.
            scattered: Also let a later part of one write have reached it and an earlier one not.
        """
        mode = "all" if seed is None else f"{'scattered' if scattered else 'some'}:{seed}"
        os.setxattr(self.place, "user.power", mode.encode())

    def settle(self) -> None:
        """Take everything as it is for safe, as it would be long after it was written."""
        os.setxattr(self.place, "user.power", b"settle")

    def counts(self) -> dict[str, int]:
        """Return how many syncs, writes and cuts there were, and how many bytes were lost."""
        counts: dict[str, int] = json.loads(os.getxattr(self.place, "user.counts"))
        return counts


@contextmanager
def power_loss_mount(
    place: Path, *, deaf: bool = False, nocase: bool = False, nolinks: bool = False
) -> Iterator[PowerLossMount]:
    """Mount the file system for the length of a block; the test is skipped where that is not possible.

    Args:
        place: A folder, made if it is not there.
        deaf: Ignore syncs, for the control run.
        nocase: Take names that differ only in case for one.
        nolinks: Refuse hard links.
    """
    need(Path("/dev/fuse").exists(), "/dev/fuse is missing, so there is no file system to cut the power of")
    need(shutil.which("fusermount3") is not None, "fusermount3 is missing; apt-get install fuse3")
    place.mkdir(parents=True, exist_ok=True)
    wanted = {"deaf": deaf, "nocase": nocase, "nolinks": nolinks}
    options = [name for name, is_wanted in wanted.items() if is_wanted]
    with subprocess.Popen(
        [sys.executable, str(_PROGRAM), str(place), *options], stderr=subprocess.PIPE
    ) as server:
        _await_mounted(place, server)
        try:
            yield PowerLossMount(place)
        finally:
            broken = server.poll() is not None
            subprocess.run(["fusermount3", "-u", "-z", str(place)], check=True)
            try:
                server.wait(timeout=10)
            except subprocess.TimeoutExpired:
                server.kill()  # somebody still has a file open; nothing more is served
            if broken:
                said = server.stderr.read().decode() if server.stderr else ""
                raise RuntimeError(f"the file system broke down, so nothing was shown: {said}")


def _await_mounted(place: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while not os.path.ismount(place):
        if server.poll() is not None:
            message = server.stderr.read().decode() if server.stderr else ""
            need(False, f"a file system of one's own cannot be mounted here: {message.strip()}")
        if time.monotonic() > deadline:
            raise RuntimeError("the file system was not mounted within 20 s")
        time.sleep(0.01)
