"""The closed set of things a backend may be able to do, declared by whoever runs a contract suite.

Owns the names and what each one obliges the harness to offer. Capabilities are declared, not detected:
a hook that somebody forgot to write would otherwise silently switch its tests off.
"""

from __future__ import annotations

import enum


class Capability(enum.StrEnum):
    """One optional ability. A suite skips a test whose capability is not declared, and says so."""

    REVISIONS = "revisions"
    """Has `read_stored_revision`; prepared sessions are reused while the revision stands."""
    SUFFIX_READ = "suffix-read"
    """Has `load_stored_from`."""
    SCAN = "scan"
    """Has `scan_stored`, which yields damage instead of raising."""
    WATCH = "watch"
    """Has `watch`."""
    HEADER_ONLY = "header-only"
    """Has `materialize_header`; `ensure_materialized` stores a session without events."""
    DELETE = "delete"
    """Has `delete_stored`."""
    CLAIMS = "claims"
    """Has `claim` and `release`, and checks the claim in the same step as every write (W1)."""
    LOCATE = "locate"
    """Has `locate`."""
    TORN_TAIL = "torn-tail"
    """A crash may leave a torn tail; the harness offers `tear`."""
    PARTIAL_BATCH = "partial-batch"
    """A crash inside a write may keep the first whole events of the batch (files; B2)."""
    POWER_LOSS = "power-loss"
    """`crash` also drops everything that was not synced, data and directory entries (D2)."""
    DAMAGE = "damage"
    """The harness offers `damage`, which spoils stored bytes in the middle of a log (R2)."""
    PLANT = "plant"
    """The harness offers `plant`, which stores any header and events behind the backend's back."""
    SUMMARIES = "summaries"
    """`list` returns the summary that was stored with the last batch (B4)."""


HOOKS: dict[Capability, tuple[str, ...]] = {
    Capability.REVISIONS: ("read_stored_revision",),
    Capability.SUFFIX_READ: ("load_stored_from",),
    Capability.SCAN: ("scan_stored",),
    Capability.WATCH: ("watch",),
    Capability.HEADER_ONLY: ("materialize_header",),
    Capability.DELETE: ("delete_stored",),
    Capability.CLAIMS: ("claim", "release"),
    Capability.LOCATE: ("locate",),
}
"""Capabilities that are nothing but optional hooks, and which."""

ALL: frozenset[Capability] = frozenset(Capability)
"""Every capability; what a first-party file backend declares."""
