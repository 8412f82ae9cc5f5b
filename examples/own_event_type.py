"""Put events of your own into a log: `python examples/own_event_type.py`.

A type that is registered as it is here is stored with `ignorable: true`: programs that do not know it, dsh
among them, read the rest of the log and pass it on unchanged. Register it with `required=True` instead if a
reader that does not know it must refuse the log.
"""

from __future__ import annotations

import asyncio
import tempfile

import msgspec

import turnlog


class Weather(msgspec.Struct, frozen=True):
    """How a reader sees the payload; it is a view and never a gate, so unknown fields pass through."""

    place: str
    celsius: float


turnlog.register_event_type("acme/weather", payload=Weather)


async def main(url: str) -> None:
    """Store an event of that type, and read it back through its view."""
    async with turnlog.open(url) as store:
        async with store.create(id="balcony") as session:
            session.append("acme/weather", {"place": "balcony", "celsius": 21.5, "sensor": 7})
            await session.flush()
        async for event in store.iter_events("balcony"):
            print(event.line.decode())
            print(event.view())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"jsonl:{folder}"))
