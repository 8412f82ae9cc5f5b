"""The door of a session's log: what an event must be so that everything that reads the log later can (L2).

Owns the checks of one event by itself. Its place among other events is for `invariants` and `surface`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnlog.errors import InvalidEventError
from turnlog.events import vocabulary
from turnlog.events.chunk_runs import PACKED_TAGS
from turnlog.events.legacy import is_current, normalise
from turnlog.events.shapes import check_shape

if TYPE_CHECKING:
    from typing import NoReturn

    from turnlog.events.envelope import SessionEvent

_STORAGE_TAGS = PACKED_TAGS | {"session"}
_MIGRATED_TYPES = frozenset({"turn/start", "turn/end"})


def admit_type(type_: str, *, ignorable: bool, index: int | None = None) -> None:
    """Check that a log with an event of a type can be loaded again.

    Args:
        type_: Event type.
        ignorable: Whether the event is marked so that readers may skip it.
        index: Position of the event, for the message.

    Raises:
        InvalidEventError: The type belongs to storage rows or to old formats, or is neither known,
            registered nor marked. Whoever made the event is at fault.
    """

    def refuse(reason: str) -> NoReturn:
        raise InvalidEventError(field="type", reason=reason, index=index, type=type_)

    if type_ in _STORAGE_TAGS:
        refuse("names a storage row, not an event")
    if type_ in vocabulary.LEGACY_TYPES:
        refuse("belongs to a log format that is no longer written")
    if not ignorable and not vocabulary.is_loadable(type_):
        refuse("is neither known nor registered nor marked as ignorable")


def check_content(event: SessionEvent, data: Any, *, index: int | None = None) -> None:
    """Check the payload of an event that is about to enter a log for the first time.

    Args:
        event: The event.
        data: Its payload, decoded.
        index: Position of the event, for the message.

    Raises:
        InvalidEventError: Its shape is wrong, or a reader would take it for an event of an old format and
            refuse the log. Whoever made the event is at fault.
    """
    check_shape(event.type, data, index)
    if event.type in _MIGRATED_TYPES and not is_current(event.type, data):
        try:
            changed = normalise(event, "") is not event
        except InvalidEventError as error:
            raise InvalidEventError(
                field=error.field, reason=error.reason, index=index, type=event.type
            ) from None
        if changed:
            raise InvalidEventError(
                field="data",
                reason="has a shape of older logs, which is read back as another event",
                index=index,
                type=event.type,
            )
