"""A proxy between the backend and a server, by which tests lose requests and replies.

Owns the forwarding and the cutting. It knows nothing of the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Literal

Side = Literal["requests", "replies"]


class Proxy:
    """Forwards TCP connections to a server's Unix socket.

    Args:
        socket: The server's socket.
    """

    def __init__(self, socket: Path) -> None:
        self.port = 0
        self.connections = 0
        """Connections accepted so far."""
        self.swallowed = 0
        """Bytes that were not handed on."""
        self._socket = socket
        self._listening: asyncio.Server | None = None
        self._swallow: set[Side] = set()
        self._marker: bytes | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening is not None
        self._listening.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def swallow(self, side: Side) -> None:
        """Hand on nothing more of one direction, on any connection; the connections stay open."""
        self._swallow.add(side)

    def swallow_replies_after(self, marker: bytes) -> None:
        """Hand on no reply any more once a request that holds `marker` has gone through."""
        self._marker = marker

    def cut(self) -> None:
        """Break every connection, both ways."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Hand everything on again; what was swallowed is gone."""
        self._swallow.clear()

    def url(self, *, schema: str, more: str = "") -> str:
        """Return the store URL of a schema behind the proxy."""
        return f"postgresql://turnlog@127.0.0.1:{self.port}/postgres?schema={schema}&sslmode=disable{more}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        for side, source, target in (("requests", reader, back), ("replies", there, writer)):
            task = asyncio.get_running_loop().create_task(self._forward(side, source, target))  # type: ignore[arg-type]  # a literal of the tuple
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, side: Side, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(1 << 16):
                if side in self._swallow:
                    self.swallowed += len(data)
                    continue
                if side == "requests" and self._marker is not None and self._marker in data:
                    self._marker = None
                    self._swallow.add("replies")
                target.write(data)
                await target.drain()
        target.close()
        self._writers.discard(target)
