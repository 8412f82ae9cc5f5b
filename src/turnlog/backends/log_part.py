"""A part of a log by seq and count, as suffix reads hand it out; shared by every backend."""

from __future__ import annotations

from turnlog.events.log import EventLog


def part_of(log: EventLog, seq: int, limit: int | None) -> EventLog:
    """Return at most `limit` events of a log from `seq` on.

    Args:
        log: The log, or a suffix of it that holds what is wanted.
        seq: The first seq wanted (inclusive); a negative one counts from the end. Beyond the end it is
            taken for the end, before the beginning for the beginning.
        limit: Events at most, or None for all.

    Returns:
        A log whose `first_seq` is where it really begins.
    """
    first = log.next_seq + seq if seq < 0 else seq
    first = min(max(first, log.first_seq), log.next_seq)
    part = EventLog(first_seq=first)
    part.extend_rows(log.rows_from(first))
    if limit is None or first + limit >= log.next_seq:
        return part
    return part.snapshot(upto=first + limit)
