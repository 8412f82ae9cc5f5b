"""The same random logs through every backend read back as the same logical events."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.property.every_backend import HARNESSES
from turnlog.errors import BackendError
from turnlog.events.batch import EncodedBatch
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog
from turnlog.persistence.backend import FullBackend, LogSummary
from turnlog.persistence.claims import this_process
from turnlog.testing import log_strategies
from turnlog.testing.scripts import header

LOGS = 200


class Everywhere:
    """One open backend of each kind, and the event loop they live in."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.harnesses = {}
        for name, make in HARNESSES.items():
            (folder / name).mkdir()
            self.harnesses[name] = make(folder / name)
        self.backends: dict[str, Any] = {name: h.make_backend() for name, h in self.harnesses.items()}
        self.ids = (f"log-{number}" for number in itertools.count())

    def close(self) -> None:
        """Close everything."""
        for backend in self.backends.values():
            self.runner.run(backend.aclose())
        self.runner.close()


@pytest.fixture(scope="module", name="everywhere")
def _everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everywhere]:
    everywhere = Everywhere(tmp_path_factory.mktemp("everywhere"))
    yield everywhere
    everywhere.close()


async def write(backend: FullBackend, session_id: str, log: EventLog, ends: list[int]) -> None:
    """Store a log in batches that end before the given seqs."""
    meta = header(session_id)
    claim = await backend.claim(session_id, this_process(), meta=meta)
    first = 0
    for end in ends:
        batch: EncodedBatch = log.snapshot(upto=end).cut(first)
        await backend.append_batch(
            meta, batch, is_materialized=first > 0, claim=claim, summary=LogSummary(turns=end)
        )
        first = end
    await backend.release(claim)


async def digests(backend: FullBackend, session_id: str, middle: int) -> tuple[str, str, str]:
    """Read a log whole, from the middle on, and its scan; return the digest of each."""
    whole = await backend.load_stored(session_id)
    suffix = await backend.load_stored_from(session_id, middle, None)
    assert whole is not None
    assert suffix is not None
    scanned = EventLog()
    async for piece in backend.scan_stored(session_id):
        scanned.extend_rows(piece.rows)  # type: ignore[union-attr]  # a Damage has none, and fails here
    return whole.events.digest(), suffix.events.digest(), scanned.digest()


@settings(
    max_examples=LOGS,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    events=st.one_of(log_strategies.session_logs(max_turns=2), log_strategies.free_events(max_size=12)),
    data=st.data(),
)
def test_the_same_log_everywhere(
    everywhere: Everywhere, events: list[SessionEvent], data: st.DataObject
) -> None:
    """Whole reads, suffix reads and scans agree on every backend, however the log was cut into batches."""
    if not events:
        return
    whole = EventLog(events).digest()
    session_id = next(everywhere.ids)
    found = {}
    middle = data.draw(st.integers(0, len(events)))
    for name, backend in everywhere.backends.items():
        cuts = data.draw(st.sets(st.integers(1, len(events)), max_size=6))
        ends = sorted({*cuts, len(events)})
        try:
            everywhere.runner.run(write(backend, session_id, EventLog(events), ends))
            found[name] = everywhere.runner.run(digests(backend, session_id, middle))
        except BackendError as error:
            error.add_note(f"on {name}")
            raise
    suffix = EventLog(first_seq=middle)
    for event in events[middle:]:
        suffix.append_event(event)
    assert found == dict.fromkeys(HARNESSES, (whole, suffix.digest(), whole))
