"""What PostgreSQL and its driver report, as typed errors that say what to do.

Owns the mapping from SQLSTATE and connection failures. Whether a write was retried, and with what, is
known to whoever calls; what can be said here is whether the server certainly rolled it back.
"""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from turnlog.errors import BackendError, BackendUnavailableError, TurnlogError

NAME: Final = "postgresql"
"""Label of the backend in errors."""

_READ_ONLY: Final = "25006"
_ADVICE: Final = {
    "28000": "the server does not let this user in; check user and pg_hba.conf",
    "28P01": "the server refused the password; check it",
    "3D000": "the database does not exist; create it",
    "3F000": "the schema is gone; open the store for writing to make it again",
    "42P01": "a table of the store is gone; restore the schema from a backup",
    "42501": "the database user lacks a privilege",
    "54000": "a batch is larger than PostgreSQL can store; flush more often",
    "XX001": "the server reports damaged data; restore the database from a backup",
    "XX002": "the server reports a damaged index; reindex it",
}
"""What to do about errors that no retry mends, by SQLSTATE."""

_PASSING: Final = {
    "53100": "the server's disk is full; free space, what is pending is written again",
    "53200": "the server is out of memory",
    "53300": "the server has no free connection slot; raise max_connections or lower pool=",
    "55P03": "another transaction keeps the session's row locked",
    "57014": "the server cancelled the statement",
    "57P01": "the server is shutting down",
    "57P02": "the server has crashed and is restarting",
    "57P03": "the server is starting up",
}
"""What goes away by itself or by an operator's hand, by SQLSTATE."""

_PASSING_CLASSES: Final = ("08", "40", "53", "57")


class RefusedServerError(psycopg.OperationalError):
    """A server whose settings would lose data, or one that is too old; raised while connecting."""


class WrongSchemaError(psycopg.OperationalError):
    """A schema that is not turnlog's."""


class RefusedConnectionError(psycopg.OperationalError):
    """A server that answered an attempt to connect with an error.

    Args:
        text: What was said about it.
        state: Its SQLSTATE.
    """

    def __init__(self, text: str, state: str) -> None:
        super().__init__(text)
        self.sqlstate = state


def is_passing(state: str) -> bool:
    """Tell whether an error goes away by itself or by an operator's hand, so that a retry may mend it."""
    return state in _PASSING or state[:2] in _PASSING_CLASSES


def typed(error: Exception, place: str, *, in_recovery: bool = False, lost: bool = False) -> TurnlogError:
    """Return the typed error for what the driver raised; the caller chains it.

    Args:
        error: What the driver or the pool raised.
        place: The address's label.
        in_recovery: Whether the server was a standby when the connection was made.
        lost: Whether the connection was lost over it, so that the outcome is unknown.

    Returns:
        `BackendUnavailableError` for what a retry may mend, `BackendError` for everything else. Its
        `wrote_nothing` is true where the server certainly rolled back.
    """
    if isinstance(error, TurnlogError):
        return error
    if isinstance(error, (PoolTimeout, TooManyRequests)):
        reason = "no connection was free or could be made in time; raise pool= in the URL, or try again"
        return BackendUnavailableError(backend=NAME, reason=reason, path=place, wrote_nothing=True)
    if isinstance(error, PoolClosed):
        return BackendError(backend=NAME, reason="the store is closed", path=place, wrote_nothing=True)
    if isinstance(error, TimeoutError):
        reason = "the server did not answer in time; the outcome is unknown"
        return BackendUnavailableError(backend=NAME, reason=reason, path=place)
    if isinstance(error, (RefusedServerError, WrongSchemaError)):
        return BackendError(backend=NAME, reason=str(error), path=place, wrote_nothing=True)
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    text = _one_line(error)
    if state is None:
        return _without_state(error, text, place)
    if isinstance(error, RefusedConnectionError):
        rolled_back = True  # nothing was sent
    else:
        rolled_back = not lost and error.diag.severity_nonlocalized == "ERROR"  # type: ignore[attr-defined]  # a psycopg.Error, since it has a state
    if state == _READ_ONLY:
        return _read_only(text, place, in_recovery)
    if is_passing(state):
        advice = _PASSING.get(state)
        reason = f"{advice} ({text})" if advice else text
        return BackendUnavailableError(backend=NAME, reason=reason, path=place, wrote_nothing=rolled_back)
    advice = _ADVICE.get(state)
    reason = f"{advice} ({text})" if advice else f"{text} (SQLSTATE {state})"
    return BackendError(backend=NAME, reason=reason, path=place, wrote_nothing=rolled_back)


def _read_only(text: str, place: str, in_recovery: bool) -> TurnlogError:
    if in_recovery:
        reason = f"the server is a standby and takes no writes; name the primary, or all servers ({text})"
        return BackendUnavailableError(backend=NAME, reason=reason, path=place, wrote_nothing=True)
    reason = (
        "the database is read-only for this user; clear default_transaction_read_only on the server, "
        f"the database or the role ({text})"
    )
    return BackendError(backend=NAME, reason=reason, path=place, wrote_nothing=True)


def _without_state(error: Exception, text: str, place: str) -> TurnlogError:
    """Judge a failure to connect, or a connection that broke: the driver tells no SQLSTATE for these."""
    if isinstance(error, psycopg.OperationalError):
        if getattr(error.pgconn, "needs_password", False):
            reason = f"the server wants a password; check user and password ({text})"
            return BackendError(backend=NAME, reason=reason, path=place, wrote_nothing=True)
        return BackendUnavailableError(backend=NAME, reason=text, path=place)
    # The driver's own refusals come before anything is sent.
    is_refusal = isinstance(error, (psycopg.DataError, psycopg.ProgrammingError))
    reason = f"{type(error).__name__}: {text}"
    return BackendError(backend=NAME, reason=reason, path=place, wrote_nothing=is_refusal)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
