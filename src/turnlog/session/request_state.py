"""The request state of a session: the latest complete header and context that the loop logged.

Owns canonical form, equality and the fold; the session keeps the incremental form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnlog.events import ecmascript
from turnlog.events.shapes import check_shape
from turnlog.session.facts import significant_events

if TYPE_CHECKING:
    from turnlog.session.facts import EventSource

_CONFIG_FIELDS = ("provider", "model", "reasoningEffort", "temperature", "maxTokens")
_DEFAULT_MARKERS = ("reasoningEffort", "maxTokens")
_ABSENT = object()


def canonical_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request header in canonical form: key order fixed, empty parts left out.

    Args:
        header: `config`, and optionally `adapterDefaults`, `system` and `tools`.

    Returns:
        A fresh dictionary with `config`, then `adapterDefaults` if a marker is set, `system` if not empty
        and `tools` if not empty.
    """
    out: dict[str, Any] = {"config": header["config"]}
    if any(_markers(header)):
        out["adapterDefaults"] = header["adapterDefaults"]
    if header.get("system"):
        out["system"] = header["system"]
    if header.get("tools"):
        out["tools"] = header["tools"]
    return out


def header_equals(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Say whether two request headers ask the model for the same.

    Absent and empty tool lists are equal, absent and empty stop lists are not; tools are compared in
    order, by their text.

    Args:
        left: A header, canonical or not.
        right: Another one.

    Returns:
        True if every field that reaches the model is equal.
    """
    return _compared(left) == _compared(right)


def _compared(header: Mapping[str, Any]) -> tuple[object, ...]:
    config = header["config"]
    fields = tuple(_text_of(config.get(name, _ABSENT)) for name in _CONFIG_FIELDS)
    tools = tuple(ecmascript.dumps(tool) for tool in header.get("tools") or ())
    return (
        fields,
        _text_of(config.get("stop", _ABSENT)),
        _markers(header),
        _text_of(header.get("system", _ABSENT)),
        tools,
    )


def _text_of(value: Any) -> str | None:
    # Compared as text because True, 1 and 1.0 are equal in Python and 1 and 1.0 are one number in a log.
    return None if value is _ABSENT else ecmascript.dumps(value)


def _markers(header: Mapping[str, Any]) -> tuple[bool, ...]:
    defaults = header.get("adapterDefaults") or {}
    return tuple(defaults.get(name) is True for name in _DEFAULT_MARKERS)


def fold_request_header(events: EventSource, from_: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Fold events into the request header that holds after them.

    Args:
        events: An `EventLog`, or any iterable of events or dictionaries, in log order.
        from_: The header that holds before them.

    Returns:
        The latest header in canonical form; `from_` as it is if the events hold none.

    Raises:
        InvalidEventError: The latest header has no provider or model.
    """
    latest = None
    for event in significant_events(events):
        if event.type == "request/header":
            latest = event
    if latest is None:
        return None if from_ is None else dict(from_)
    data = latest.data
    check_shape("request/header", data, latest.seq)
    return canonical_header(data["header"])


def fold_request_context(events: EventSource) -> dict[str, Any] | None:
    """Fold events into the request context that holds after them.

    Args:
        events: An `EventLog`, or any iterable of events or dictionaries, in log order.

    Returns:
        The latest context, or `None` if the events hold none.
    """
    latest = None
    for event in significant_events(events):
        if event.type == "request/context":
            latest = event
    return None if latest is None else dict(latest.data)
