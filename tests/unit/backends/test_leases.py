"""Epochs and leases: when a claim keeps others out, and when it may be taken (W1)."""

from __future__ import annotations

import dataclasses
import os

import pytest

from turnlog.backends import leases
from turnlog.backends.leases import Lease
from turnlog.errors import ClaimOwner, SessionBusyError
from turnlog.persistence.claims import this_process

MINE = this_process(1)
DEAD = dataclasses.replace(MINE, start_time=-1)
STRANGER = ClaimOwner(pid=1, host="elsewhere", since=1)


@pytest.mark.parametrize(
    ("owner", "expires", "respected"),
    [
        (MINE, 11, True),
        (MINE, 10, False),
        (STRANGER, 11, True),
        (STRANGER, 10, False),
        (DEAD, 11, False),
    ],
    ids=["alive", "alive-run-out", "unseen", "unseen-run-out", "dead"],
)
def test_a_lease_counts_until_it_ends_or_its_owner_is_dead(
    owner: ClaimOwner, expires: int, respected: bool
) -> None:
    """W1: a running process loses its lease with time only; a dead one at once; an unseen one with time."""
    lease = Lease("w", owner, expires)
    assert leases.is_respected(lease, 10) == respected
    if respected:
        with pytest.raises(SessionBusyError) as busy:
            leases.check_free("s", lease, 10, writer="other", takeover=False)
        assert busy.value.owner == owner
        assert leases.with_holder("interrupted", None, lease, 10) == ("live", None)
    else:
        leases.check_free("s", lease, 10, writer="other", takeover=False)
        assert leases.with_holder("interrupted", None, lease, 10) == ("interrupted", None)


def test_a_takeover_and_ones_own_claim_pass() -> None:
    """W1: an explicit takeover passes a living owner; a writer is not kept out by its own older claim."""
    lease = Lease("w", MINE, 11)
    leases.check_free("s", lease, 10, writer="other", takeover=True)
    leases.check_free("s", lease, 10, writer="w", takeover=False)
    leases.check_free("s", None, 10, writer="other", takeover=False)
    assert not leases.is_respected(None, 10)


def test_epochs_only_rise() -> None:
    """W1: each claim has a higher epoch than the one before, whatever the clock does meanwhile."""
    first = leases.next_epoch(None, 1000)
    assert first > 1000
    assert leases.next_epoch(first, 10) == first + 1
    assert leases.next_epoch(first, 5000) == 5001


def test_a_lease_is_renewed_by_writes_but_not_by_every_one() -> None:
    """W1: a write renews once a part of the lease has passed, and always one that is about to end."""
    assert not leases.needs_renewal(30_000, 0, 30_000)
    assert not leases.needs_renewal(30_000, 999, 30_000)
    assert leases.needs_renewal(30_000, 1000, 30_000)
    assert leases.needs_renewal(30_000, 60_000, 30_000)
    assert leases.needs_renewal(0, 60_000, 30_000)


def test_an_owner_survives_its_row() -> None:
    """W1: the facts of an owner come back as they were; another program's text describes nobody."""
    for owner in (MINE, STRANGER):
        assert leases.decode_owner(leases.encode_owner(owner)) == owner
    for text in (None, "", "{", "[]", "7", '{"pid":1}', '{"pid":"x","host":"h","since":1}'):
        assert leases.decode_owner(text) is None
    assert MINE.pid == os.getpid()


def test_writers_have_names_of_their_own() -> None:
    """W1: no two writers share a lease row."""
    assert len({leases.new_writer() for _ in range(100)}) == 100
