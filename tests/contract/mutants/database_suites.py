"""The contract suites on the wrong backends of a database, the same for every database.

Owns which faults there are and which test must notice each. Not collected: the classes are meant to fail.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

CAUGHT_BY = {
    "TestLosesDataOnReopen": (
        "test_acknowledged_events_survive_a_crash",
        "test_events_survive_an_orderly_close",
        "test_flushed_events_survive_a_crash",
    ),
    "TestEventByEvent": ("test_a_crash_at_the_first_trace_of_an_append_leaves_no_part",),
    "TestHeaderFirst": ("test_a_crash_at_the_first_trace_of_an_append_leaves_no_part",),
    "TestNoSeqCheck": ("test_a_stale_writer_is_refused",),
    "TestIgnoresTheClaim": (
        "test_a_second_writer_is_told_who_is_first",
        "test_takeover_fences_the_first_writer",
    ),
    "TestWritesAfterTakeover": (
        "test_takeover_fences_the_first_writer",
        "test_a_write_held_up_over_a_takeover_does_not_arrive[before-theirs]",
    ),
    "TestConstantRevision": ("test_revisions_follow_the_log", "test_a_changed_log_is_read_again"),
}
"""Which tests must fail on which wrong backend."""

_OF_THE_BACKEND = (
    "EventByEvent",
    "HeaderFirst",
    "NoSeqCheck",
    "IgnoresTheClaim",
    "WritesAfterTakeover",
    "ConstantRevision",
)
"""Faults that are a class of backends; the others are in the harness."""


def suites_over(base: Any, wrong: ModuleType) -> dict[str, type]:
    """Make a suite over each wrong backend, and the control over the right one.

    Args:
        base: Both contract suites with a fixture `harness` that runs the backends of the class in `kind`.
        wrong: The module with the wrong ones.

    Returns:
        The suites by name.
    """
    kinds = {"NothingWrong": base.kind, **{name: getattr(wrong, name) for name in _OF_THE_BACKEND}}
    return {
        f"Test{name}": type(f"Test{name}", (base,), {"__doc__": kind.__doc__, "kind": kind})
        for name, kind in kinds.items()
    }
