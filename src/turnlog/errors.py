"""Every error that turnlog raises, as one tree; what each says is built from typed arguments.

TurnlogError
├── UsageError                                   a call that cannot be right
├── LogError (.session_id)
│   ├── SessionNotFoundError · SessionExistsError (.where) · SessionBusyError (.owner)
│   ├── WriterFencedError (.pending) · SessionCollisionError · UnexpectedSeqError (.expected, .actual)
│   ├── InvalidEventError (.field) ── InvariantError (.rule)
│   ├── InvalidSessionIdError · ForkError (.kind)
│   ├── CorruptLogError (.line, .offset, .seq, .kind)
│   └── UnsupportedFormatError (.found, .supported, .direction)
├── BackendError (.backend) ── BackendUnavailableError · UndurableError (.pending) · BackpressureError
├── ModelError ── ModelUnavailableError · ModelRejectedError · ModelMalformedError
└── ToolError
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events.envelope import SessionEvent

_QUOTE_LIMIT = 80
_USER_PART = re.compile(r"//\S*@")
_SECRET_OPTION = re.compile(r"(password=)[^&\s]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """Return a URL, or a message that holds one, without its user part and its passwords.

    Args:
        text: Any text.
    """
    return _SECRET_OPTION.sub(r"\1…", _USER_PART.sub("//…@", text))


def quote(text: object) -> str:
    """Quote a value for a message: on one line, without control characters, bounded in length.

    Args:
        text: Anything; strings are shown as they are, other values by their `repr`.

    Returns:
        The text in double quotes, cut to 80 characters, non-printing characters escaped.
    """
    raw = text if isinstance(text, str) else repr(text)
    return quote_path(raw if len(raw) <= _QUOTE_LIMIT else raw[: _QUOTE_LIMIT - 1] + "…")


def quote_path(path: str) -> str:
    """Quote a path for a message, uncut: somebody has to find the file.

    Args:
        path: The path; its length is bounded by the system.

    Returns:
        The path in double quotes on one line, non-printing characters escaped.
    """
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in path)
    return f'"{shown}"'


@dataclass(frozen=True, slots=True)
class ClaimOwner:
    """The process that holds a session's claim (W1)."""

    pid: int
    """Process id on `host`."""
    host: str
    """Host name as the owner knows it."""
    since: int
    """When the claim was taken, Unix milliseconds."""
    boot_id: str | None = None
    """Identity of the host's boot; a pid means nothing in another one."""
    start_time: int | None = None
    """Start time of the process in clock ticks since boot; tells a reused pid apart."""
    pid_namespace: str | None = None
    """Identity of the pid namespace; a pid means nothing in another one."""


class TurnlogError(Exception):
    """The root of everything that turnlog raises on purpose."""

    code: ClassVar[str] = "error"
    """Stable name for programs, kebab-case."""
    retryable: bool = False
    """Whether the same call may succeed later without anything being changed."""

    def details(self) -> dict[str, Any]:
        """Return the typed arguments of this error as JSON values, for `--json` output.

        Returns:
            A fresh dictionary without absent values. Pending events are given as their count.
        """
        out: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name.startswith("_") or value is None or name == "retryable":
                continue
            if isinstance(value, ClaimOwner):
                out[name] = {k: v for k, v in asdict(value).items() if v is not None}
            elif isinstance(value, (list, tuple)):
                out[name] = len(value)
            elif isinstance(value, (str, int, float, bool)):
                out[name] = value
            else:
                out[name] = str(value)
        return out


class UsageError(TurnlogError):
    """A call that cannot be right, whatever is stored; the caller is at fault."""

    code: ClassVar[str] = "usage"

    def __init__(self, message: str) -> None:
        super().__init__(message)


class LogError(TurnlogError):
    """Something about one session's log."""

    code: ClassVar[str] = "log-error"

    def __init__(self, message: str = "the session log cannot be used", *, session_id: str | None) -> None:
        super().__init__(message)
        self.session_id = session_id


def _session(session_id: str | None) -> str:
    return "this session" if session_id is None else f"session {quote(session_id)}"


def _stored(session_id: str | None, path: str | None) -> str:
    """Name what is stored: a session and its file, or the file alone, which may hold many or none."""
    if path is None:
        return _session(session_id)
    return quote_path(path) if session_id is None else f"{_session(session_id)} in {quote_path(path)}"


def _moment(milliseconds: int) -> str:
    """Write a time for people, to the second."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(milliseconds // 1000))
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} (Unix ms)"  # a clock that was never set, or a lock file with a wild number


class SessionNotFoundError(LogError):
    """No log with this id is stored or live; the caller's id is wrong or the log was deleted."""

    code: ClassVar[str] = "session-not-found"

    def __init__(self, *, session_id: str) -> None:
        super().__init__(
            f"{_session(session_id)} does not exist; list the store to see its ids", session_id=session_id
        )


class SessionExistsError(LogError):
    """A session with this id is already there; the caller must take another id or resume."""

    code: ClassVar[str] = "session-exists"

    def __init__(self, *, session_id: str, where: Literal["memory", "storage", "live"]) -> None:
        place = {"memory": "in memory", "storage": "in the store", "live": "as a live session"}[where]
        super().__init__(
            f"{_session(session_id)} already exists {place}; resume it or choose another id",
            session_id=session_id,
        )
        self.where = where


class SessionBusyError(LogError):
    """Another writer holds the claim (W1); nothing was written."""

    code: ClassVar[str] = "session-busy"
    retryable = True

    def __init__(self, *, session_id: str, owner: ClaimOwner | None = None) -> None:
        who = "another writer" if owner is None else f"process {owner.pid} on {quote(owner.host)}"
        since = "" if owner is None else f" since {_moment(owner.since)}"
        super().__init__(
            f"{_session(session_id)} is being written by {who}{since}; "
            "stop that writer, wait for it, or take the session over",
            session_id=session_id,
        )
        self.owner = owner


class WriterFencedError(LogError):
    """The claim was lost to another writer; the events that were not written are in `.pending` (W1)."""

    code: ClassVar[str] = "writer-fenced"

    def __init__(self, *, session_id: str, pending: Sequence[SessionEvent] = ()) -> None:
        super().__init__(
            f"{_session(session_id)} now belongs to another writer; the events in .pending were not written: "
            "resume the session and append what is still wanted",
            session_id=session_id,
        )
        self.pending: tuple[SessionEvent, ...] = tuple(pending)


class SessionCollisionError(LogError):
    """Two different sessions claim one id, for example under different working directories."""

    code: ClassVar[str] = "session-collision"

    def __init__(
        self, *, session_id: str, reason: str, advice: str = "give the new session another id"
    ) -> None:
        super().__init__(
            f"{_session(session_id)} collides with a stored one: {reason}; nothing was written, {advice}",
            session_id=session_id,
        )
        self.reason = reason


class UnexpectedSeqError(LogError):
    """An append did not start where the log ends; nothing was written (B3). The caller's view is stale."""

    code: ClassVar[str] = "unexpected-seq"

    def __init__(
        self, *, session_id: str | None, expected: int, actual: int, index: int | None = None
    ) -> None:
        at = "" if index is None else f" at index {index}"
        super().__init__(
            f"{_session(session_id)} expects seq {expected}{at} but got {actual}; nothing was written, "
            "read the log again before appending",
            session_id=session_id,
        )
        self.expected = expected
        self.actual = actual
        self.index = index


class InvalidEventError(LogError):
    """An event that cannot be stored (L2); whoever made it is at fault, nothing was changed."""

    code: ClassVar[str] = "invalid-event"

    def __init__(
        self,
        *,
        field: str,
        reason: str,
        session_id: str | None = None,
        index: int | None = None,
        type: str | None = None,
    ) -> None:
        what = "event" if type is None else f"{quote(type)} event"
        at = "" if index is None else f" at index {index}"
        super().__init__(f"{what}{at} is not valid: {field} {reason}; {self._advice}", session_id=session_id)
        self.field = field
        self.reason = reason
        self.index = index
        self.type = type

    _advice: ClassVar[str] = "correct the event, nothing was stored"


class InvariantError(InvalidEventError):
    """An event that breaks the order of turns, steps and tool calls in a live session (L4)."""

    code: ClassVar[str] = "invariant"
    _advice: ClassVar[str] = "append the missing event first, nothing was stored"

    def __init__(
        self,
        *,
        rule: str,
        reason: str,
        session_id: str | None = None,
        field: str = "order",
        index: int | None = None,
        type: str | None = None,
    ) -> None:
        super().__init__(
            field=field,
            reason=f"breaks the rule {rule}: {reason}",
            session_id=session_id,
            index=index,
            type=type,
        )
        self.rule = rule


class InvalidSessionIdError(LogError):
    """A session id that cannot name a stored session (S1); the caller must choose another."""

    code: ClassVar[str] = "invalid-session-id"

    def __init__(self, *, session_id: str, reason: str) -> None:
        super().__init__(
            f"{quote(session_id)} cannot be a session id: {reason}; choose another id", session_id=session_id
        )
        self.reason = reason


class CorruptLogError(LogError):
    """Stored bytes that cannot be read and are not merely a torn tail (R2). Caused by the medium."""

    code: ClassVar[str] = "corrupt-log"

    def __init__(
        self,
        *,
        session_id: str | None,
        reason: str,
        line: int | None = None,
        offset: int | None = None,
        seq: int | None = None,
        kind: str = "damage",
        path: str | None = None,
    ) -> None:
        where = ", ".join(
            f"{name} {value}"
            for name, value in (("line", line), ("byte", offset), ("seq", seq))
            if value is not None
        )
        place = f" ({where})" if where else ""
        what = f"{_session(session_id)} is damaged"
        if path is not None:
            what = f"{quote_path(path)} is damaged" if session_id is None else f"{what} in {quote_path(path)}"
        advice = self._advice.get(kind, "nothing was cut, use salvage to copy out what is readable")
        super().__init__(f"{what}: {reason}{place}; {advice}", session_id=session_id)
        self.reason = reason
        self.line = line
        self.offset = offset
        self.seq = seq
        self.kind = kind
        self.path = path

    _advice: ClassVar[dict[str, str]] = {
        "bundle": "nothing of it was taken, get the file again",
        "database": "nothing was changed, restore a backup or recover the file with the database's own tools",
        "duplicate": "nothing was changed, salvage copies either one when it is given as a file",
        "entry": "nothing was changed, look at what stands there",
    }


class UnsupportedFormatError(LogError):
    """A log of another format version, or with a required event type that is not known here."""

    code: ClassVar[str] = "unsupported-format"

    def __init__(
        self,
        *,
        session_id: str | None,
        found: object,
        supported: object,
        direction: Literal["newer", "older", "unknown-type"],
        path: str | None = None,
        seq: int | None = None,
    ) -> None:
        what = _stored(session_id, path)
        if direction == "unknown-type":
            at = "" if seq is None else f" at seq {seq}"
            message = (
                f"{what} has an event of the required type {quote(found)}{at} that is "
                "not known here; register the type or load it with the program that wrote it"
            )
        else:
            advice = "upgrade turnlog" if direction == "newer" else "convert it with an older release"
            message = (
                f"{what} has format version {quote(found)}, this release reads {quote(supported)}; {advice}"
            )
        super().__init__(message, session_id=session_id)
        self.found = found
        self.supported = supported
        self.direction = direction
        self.path = path
        self.seq = seq


class ForkError(LogError):
    """A fork at a place where a session cannot be split; the source is unchanged."""

    code: ClassVar[str] = "fork"

    def __init__(
        self, *, session_id: str, reason: str, kind: Literal["open-turn", "invalid-boundary", "not-live"]
    ) -> None:
        super().__init__(
            f"{_session(session_id)} cannot be forked there: {reason}; fork after the end of a turn",
            session_id=session_id,
        )
        self.reason = reason
        self.kind = kind


class BackendError(TurnlogError):
    """The storage behind a backend failed; the driver's exception is chained."""

    code: ClassVar[str] = "backend-error"

    def __init__(
        self, *, backend: str, reason: str, path: str | None = None, wrote_nothing: bool = False
    ) -> None:
        file = "" if path is None else f" at {quote_path(path)}"
        super().__init__(f"the {backend} backend failed{file}: {reason}")
        self.backend = backend
        self.reason = reason
        self.path = path
        self.wrote_nothing = wrote_nothing
        """Whether the call certainly left nothing behind; if false the outcome is unknown (B3)."""


class BackendUnavailableError(BackendError):
    """The medium cannot be reached now; the outcome is unknown and a retry is safe (B3)."""

    code: ClassVar[str] = "backend-unavailable"
    retryable = True


class UndurableError(BackendError):
    """Events that were admitted are not durable (D2); they are kept in order and retried."""

    code: ClassVar[str] = "undurable"
    retryable = True

    def __init__(
        self, *, pending: int, backend: str = "storage", reason: str = "", path: str | None = None
    ) -> None:
        why = reason or f"{pending} events are not durable"
        super().__init__(
            backend=backend, reason=f"{why}; they are kept and written again on the next flush", path=path
        )
        self.pending = pending


class BackpressureError(BackendError):
    """The queue of events that are not yet durable is full (D4); the event was not admitted."""

    code: ClassVar[str] = "backpressure"
    retryable = True

    def __init__(self, *, session_id: str, pending_bytes: int, budget: int, backend: str = "storage") -> None:
        super().__init__(
            backend=backend,
            reason=(
                f"{_session(session_id)} has {pending_bytes} bytes waiting for a budget of {budget}; "
                "await session.drain() and append again"
            ),
        )
        self.session_id = session_id
        self.pending_bytes = pending_bytes
        self.budget = budget


class ModelError(TurnlogError):
    """A model request that did not give an answer."""

    code: ClassVar[str] = "model-error"

    def __init__(self, message: str, *, provider: str | None = None, model: str | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model


class ModelUnavailableError(ModelError):
    """The provider could not be reached or was overloaded; a retry may succeed."""

    code: ClassVar[str] = "model-unavailable"
    retryable = True


class ModelRejectedError(ModelError):
    """The provider refused the request; the request or the account is at fault."""

    code: ClassVar[str] = "model-rejected"


class ModelMalformedError(ModelError):
    """The provider answered with something that is not an answer."""

    code: ClassVar[str] = "model-malformed"


class ToolError(TurnlogError):
    """A tool could not be run or failed; the tool is at fault."""

    code: ClassVar[str] = "tool-error"

    def __init__(self, message: str, *, name: str | None = None, call_id: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.call_id = call_id
