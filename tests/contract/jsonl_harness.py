"""The harness of the JSONL backend: the files themselves are the out-of-band access.

A crash kills the process; when no other process is left, it is a power cut as well, so that whatever was
not synced is gone. The file layer that knows what was synced is `LossyFiles`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.ecmascript import dumps
from turnlog.events.envelope import SessionEvent
from turnlog.events.segment import encode_segment, project_key
from turnlog.persistence.backend import PersistenceBackend
from turnlog.testing.capabilities import ALL
from turnlog.testing.damage import flip_bit
from turnlog.testing.harness import CoordinatorHarness, RawSession
from turnlog.testing.lossy_files import LossyFiles, PowerModel

JSONL_CAPABILITIES = ALL

LOG_NAMES = {"none": "session.jsonl", "zstd": "session.jsonl.zstd"}


class JsonlHarness(CoordinatorHarness):
    """Any number of `JsonlBackend`s over one root.

    Args:
        folder: An empty folder; the root is made inside it.
        compression: `none` or `zstd`.
        cuts_power: Whether the crash of the last process is a power cut, too.
    """

    def __init__(self, folder: Path, compression: str, *, cuts_power: bool = True) -> None:
        super().__init__()
        self.root = folder / "sessions"
        self.compression = compression
        self.cuts_power = cuts_power
        self.power = PowerModel(folder)
        self._layers: dict[int, LossyFiles] = {}

    def make_files(self) -> LossyFiles:
        """Return the file layer of one process."""
        return LossyFiles(self.power)

    def make_backend(self) -> PersistenceBackend:
        files = self.make_files()
        backend = JsonlBackend(self.root, compression=self.compression, files=files)
        self._layers[id(backend)] = files
        return backend

    async def crash_backend(self, backend: PersistenceBackend) -> None:
        assert isinstance(backend, JsonlBackend)
        files = self._layers.pop(id(backend))
        files.dead = True
        backend.forget()
        files.die()
        others = [files for files in self._layers.values() if files.is_open]
        if self.cuts_power and not others:
            self.power.power_cut()

    async def raw(self, session_id: str) -> RawSession | None:
        folder = self._folder(session_id)
        if folder is None or not (folder / self.log_name).exists():
            return None
        beside: dict[str, bytes] = {}
        for path in sorted(folder.iterdir()):
            if path.name not in {self.log_name, "session.lock"}:
                with contextlib.suppress(FileNotFoundError):  # a temporary file of a writer at work
                    beside[path.name] = path.read_bytes()
        return RawSession((folder / self.log_name).read_bytes(), beside)

    async def tear(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        batch = EncodedBatch.of(events)
        # Of a plain batch the last line is cut; of a frame the checksum, so that its events come back.
        torn = batch.text()[:-7] if self.compression == "none" else batch.frame()[:-2]
        log = self._log(session_id)
        self._replace(log, log.read_bytes() + torn)

    async def damage(self, session_id: str) -> None:
        log = self._log(session_id)
        data = log.read_bytes()
        if self.compression == "none":
            self._replace(log, data.replace(b'"type":"user', b'"type:"user', 1))
        else:
            second = frames.scan(data).spans[1]
            self._replace(log, flip_bit(data, sum(second) // 2))

    async def plant(self, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        first = dumps(dict(header)).encode() + b"\n"
        rest = "".join(dumps(dict(event)) + "\n" for event in events).encode()
        folder = self.root / project_key(header.get("cwd")) / encode_segment(header["id"])
        folder.mkdir(parents=True)
        if self.compression == "none":
            (folder / self.log_name).write_bytes(first + rest)
        else:
            (folder / self.log_name).write_bytes(frames.compress(first) + frames.compress(rest))

    @property
    def log_name(self) -> str:
        """The file name of a log in this encoding."""
        return LOG_NAMES[self.compression]

    def _folder(self, session_id: str) -> Path | None:
        found = (
            list(self.root.glob(f"*/{_literal(encode_segment(session_id))}")) if self.root.exists() else []
        )
        return found[0] if found else None

    def _log(self, session_id: str) -> Path:
        folder = self._folder(session_id)
        assert folder is not None, f"nothing is stored under {session_id!r}"
        return folder / self.log_name

    def _replace(self, log: Path, data: bytes) -> None:
        """Write a file so that the power model takes it as durable."""
        log.write_bytes(data)
        with log.open("rb") as file:
            self.power.synced(file.fileno())


def _literal(name: str) -> str:
    """Escape a name for `glob`."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
