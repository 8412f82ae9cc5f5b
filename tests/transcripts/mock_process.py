"""A model server beside the tests: npm `@copilotkit/aimock`, started and stopped here.

Owns the process and the questions about what it understood. It speaks the four providers' protocols and
answers every request with the same words.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.interop.peer_process import end_process, find_node, install_packages

FOLDER = Path(__file__).parent / "aimock"
ANSWER = "Understood."


class MockServer:
    """One running server; a context manager.

    Raises:
        PeerUnavailable: Node or npm cannot be had here.
    """

    def __init__(self) -> None:
        install_packages(FOLDER)
        self._process = subprocess.Popen(
            [str(find_node()), "server.mjs"],
            cwd=FOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = str(self._line()["url"])
        """Where it listens, on the loopback."""

    def _line(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def requests(self) -> list[dict[str, Any]]:
        """Return what it made of the requests since the last question: roles, ids of calls and results."""
        assert self._process.stdin is not None
        self._process.stdin.write("requests\n")
        self._process.stdin.flush()
        found: list[dict[str, Any]] = self._line()
        return found

    def __enter__(self) -> MockServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_process(self._process)
