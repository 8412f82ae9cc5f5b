"""turnlog: the durable session log of LLM agents.

Owns the list of public names; each is loaded from its module when it is first used, so that importing
the package costs nothing that is not needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.lazy_names import lazy_names

if TYPE_CHECKING:
    from turnlog.errors import (
        BackendError,
        BackendUnavailableError,
        BackpressureError,
        ClaimOwner,
        CorruptLogError,
        ForkError,
        InvalidEventError,
        InvalidSessionIdError,
        InvariantError,
        LogError,
        ModelError,
        ModelMalformedError,
        ModelRejectedError,
        ModelUnavailableError,
        SessionBusyError,
        SessionCollisionError,
        SessionExistsError,
        SessionNotFoundError,
        ToolError,
        TurnlogError,
        UndurableError,
        UnexpectedSeqError,
        UnsupportedFormatError,
        UsageError,
        WriterFencedError,
    )
    from turnlog.events.ecmascript import dumps
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.events.vocabulary import register_event_type
    from turnlog.opening import open
    from turnlog.persistence.backend import LogSummary
    from turnlog.persistence.copying import CopiedSession, CopyReport
    from turnlog.persistence.erasing import Erasure
    from turnlog.persistence.live_session import LiveSession
    from turnlog.persistence.salvage import Salvage
    from turnlog.persistence.store import SessionStore
    from turnlog.persistence.store_reader import SessionInfo
    from turnlog.persistence.survey import Finding
    from turnlog.persistence.verification import Verification
    from turnlog.session.derive import derive_messages
    from turnlog.session.invariants import InvariantViolation, check_invariants
    from turnlog.session.registry import SessionRegistry
    from turnlog.session.repair import interrupted_turn_closers
    from turnlog.session.session import Session

__all__ = [
    "BackendError",
    "BackendUnavailableError",
    "BackpressureError",
    "ClaimOwner",
    "CopiedSession",
    "CopyReport",
    "CorruptLogError",
    "Erasure",
    "Finding",
    "ForkError",
    "InvalidEventError",
    "InvalidSessionIdError",
    "InvariantError",
    "InvariantViolation",
    "LiveSession",
    "LogError",
    "LogSummary",
    "ModelError",
    "ModelMalformedError",
    "ModelRejectedError",
    "ModelUnavailableError",
    "Salvage",
    "Session",
    "SessionBusyError",
    "SessionCollisionError",
    "SessionEvent",
    "SessionExistsError",
    "SessionHeader",
    "SessionInfo",
    "SessionNotFoundError",
    "SessionRegistry",
    "SessionStore",
    "ToolError",
    "TurnlogError",
    "UndurableError",
    "UnexpectedSeqError",
    "UnsupportedFormatError",
    "UsageError",
    "Verification",
    "WriterFencedError",
    "check_invariants",
    "derive_messages",
    "dumps",
    "interrupted_turn_closers",
    "open",
    "register_event_type",
]

_ELSEWHERE = {
    "CopiedSession": "turnlog.persistence.copying",
    "CopyReport": "turnlog.persistence.copying",
    "Erasure": "turnlog.persistence.erasing",
    "Finding": "turnlog.persistence.survey",
    "InvariantViolation": "turnlog.session.invariants",
    "LiveSession": "turnlog.persistence.live_session",
    "LogSummary": "turnlog.persistence.backend",
    "Salvage": "turnlog.persistence.salvage",
    "Session": "turnlog.session.session",
    "SessionEvent": "turnlog.events.envelope",
    "SessionHeader": "turnlog.events.header",
    "SessionInfo": "turnlog.persistence.store_reader",
    "SessionRegistry": "turnlog.session.registry",
    "SessionStore": "turnlog.persistence.store",
    "Verification": "turnlog.persistence.verification",
    "check_invariants": "turnlog.session.invariants",
    "derive_messages": "turnlog.session.derive",
    "dumps": "turnlog.events.ecmascript",
    "interrupted_turn_closers": "turnlog.session.repair",
    "open": "turnlog.opening",
    "register_event_type": "turnlog.events.vocabulary",
}
"""Module of each public name that is not an error; errors are in `turnlog.errors`."""

_loaded, _names = lazy_names(globals(), dict.fromkeys(__all__, "turnlog.errors") | _ELSEWHERE)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version  # reads files, so only when it is asked for

        globals()[name] = version("turnlog")
        return globals()[name]
    return _loaded(name)


def __dir__() -> list[str]:
    return sorted([*_names(), "__version__"])
