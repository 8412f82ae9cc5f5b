"""What others need to test against turnlog: contract suites, faulty backends, strategies, doubles.

Owns the public names only. It imports pytest and Hypothesis (the extra `testing`); `import turnlog` does
not import this. Assertions of the suites are rewritten by pytest, so a failure shows both sides.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "turnlog.testing.coordinator_adoption",
    "turnlog.testing.coordinator_claims",
    "turnlog.testing.coordinator_close",
    "turnlog.testing.coordinator_contract",
    "turnlog.testing.coordinator_failures",
    "turnlog.testing.coordinator_live",
    "turnlog.testing.coordinator_prepared",
    "turnlog.testing.harness",
    "turnlog.testing.invariants_fixture",
    "turnlog.testing.machine",
    "turnlog.testing.persistence_append",
    "turnlog.testing.persistence_read",
    "turnlog.testing.persistence_repair",
)

from turnlog.testing.capabilities import ALL as ALL_CAPABILITIES  # after the registration
from turnlog.testing.capabilities import Capability  # as above, and so on
from turnlog.testing.coordinator_contract import CoordinatorContract
from turnlog.testing.damage import DamagedBytes, damaged
from turnlog.testing.faulty_backend import FaultyBackend, Gate
from turnlog.testing.harness import CoordinatorHarness, Harness, RawSession, opened, read_raw
from turnlog.testing.invariants_fixture import watch_invariants
from turnlog.testing.json_strategies import json_values, not_json
from turnlog.testing.log_strategies import (
    bursts,
    free_events,
    interrupted_logs,
    session_logs,
    whole_logs,
)
from turnlog.testing.lossy_files import LossyFiles, PowerModel
from turnlog.testing.machine import PersistenceMachine
from turnlog.testing.manual_time import ManualScheduler, until
from turnlog.testing.persistence_contract import PersistenceContract
from turnlog.testing.scripts import LogScript, append_live, go_live
from turnlog.testing.suite import ContractSuite, needs, waive
from turnlog.testing.summary import print_summary

__all__ = [
    "ALL_CAPABILITIES",
    "Capability",
    "ContractSuite",
    "CoordinatorContract",
    "CoordinatorHarness",
    "DamagedBytes",
    "FaultyBackend",
    "Gate",
    "Harness",
    "LogScript",
    "LossyFiles",
    "ManualScheduler",
    "PersistenceContract",
    "PersistenceMachine",
    "PowerModel",
    "RawSession",
    "append_live",
    "bursts",
    "damaged",
    "free_events",
    "go_live",
    "interrupted_logs",
    "json_values",
    "needs",
    "not_json",
    "opened",
    "print_summary",
    "read_raw",
    "session_logs",
    "until",
    "waive",
    "watch_invariants",
    "whole_logs",
]
