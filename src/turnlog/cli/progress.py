"""Progress bars for long work, on a terminal only.

Owns the one loop in which commands read every event of a session, and counting sessions. A bar goes to
standard error, so that it never mixes with the output, and is gone when the work is done.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

import turnlog
from turnlog.cli.options import Settings
from turnlog.cli.targets import Target
from turnlog.cli.terminal import Screen

LONG: Final = 100_000
"""Events from which on a log is long enough to show a bar."""

_EVERY: Final = 8192
"""Events between two updates of the bar."""


async def all_events(settings: Settings, target: Target) -> AsyncIterator[turnlog.SessionEvent]:
    """Yield every stored event of a session, in flat memory.

    Args:
        settings: Tell whether a bar is wanted.
        target: The session.

    Yields:
        The events in order.

    Raises:
        TurnlogError: As `SessionStore.iter_events`.
    """
    events = target.store.iter_events(target.session_id)
    with ExitStack() as stack:
        length = 0 if settings.quiet or not sys.stderr.isatty() else await _length(target)
        if length < LONG:
            async for event in events:
                yield event
            return
        bar = stack.enter_context(_bar(length))
        task = bar.add_task("reading", total=length)
        async for event in events:
            yield event
            if event.seq % _EVERY == 0:
                bar.update(task, completed=event.seq)


@contextmanager
def counting(settings: Settings, what: str, out: Screen) -> Iterator[Callable[[int, int], None]]:
    """Show a bar that counts sessions, where a bar is wanted.

    Args:
        settings: Tell whether a bar is wanted.
        what: What is being done, such as `copying`.
        out: Where lines are printed meanwhile; those stay above the bar where both are on one terminal.

    Yields:
        A function to be told how many of how many are done.
    """
    shared = sys.stdout.isatty()
    if settings.quiet or not sys.stderr.isatty() or (shared and settings.as_json):
        yield lambda done, total: None
        return
    with Progress(
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} sessions"),
        console=out.console if shared else Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=1)
        yield lambda done, total: bar.update(task, completed=done, total=total)


async def _length(target: Target) -> int:
    return (await target.store.tail(target.session_id, 1)).events.next_seq


def _bar(length: int) -> Progress:
    return Progress(
        TextColumn("reading"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"of {length:,} events"),
        console=Console(stderr=True),
        transient=True,
    )
