"""One running original for the whole interop lane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.lanes import need
from tests.interop.peer_process import Peer, PeerUnavailable


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """The original, running; a clear skip where Node is missing, a failure in CI."""
    try:
        running = Peer()
    except PeerUnavailable as missing:
        need(False, f"the original cannot run here: {missing}")
        raise
    with running:
        yield running
