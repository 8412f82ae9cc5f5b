"""Standard output and standard error, for people and for pipes.

Owns how lines, tables, JSON and progress reach the terminal. Everything printed here has been made safe by
`text` before; markup is never interpreted, colours appear on a terminal only and honour NO_COLOR.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from turnlog.transcripts import text

READING_WIDTH: Final = 100
"""Prose is wrapped at this many columns at most, however wide the terminal is."""

_GAP: Final = "  "
_WATCH_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    style: str = ""
    right: bool = False
    shrinks_to: int | None = None
    """Fewest columns to cut this one to when the terminal is narrow; None when it is never cut."""


class Screen:
    """One output stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self.is_terminal: bool = self.console.is_terminal

    @property
    def width(self) -> int | None:
        """Columns for prose, or None in a pipe, where nothing is wrapped."""
        return min(self.console.width, READING_WIDTH) if self.is_terminal else None

    def write(self, line: Text | str) -> None:
        """Print one line."""
        if self.is_terminal:
            self.console.print(line, soft_wrap=True)
        else:
            self._stream.write((line.plain if isinstance(line, Text) else line) + "\n")

    def blank(self) -> None:
        """Print an empty line."""
        self.write("")

    def lines(self, lines: Iterable[Text | str]) -> None:
        """Print line after line."""
        for line in lines:
            self.write(line)

    def json(self, value: object) -> None:
        """Print one value as one line of JSON."""
        self.raw(text.json_line(value) + "\n")

    def raw(self, piece: str) -> None:
        """Print text that is complete with its newlines."""
        self._stream.write(piece)

    def flush(self) -> None:
        """Hand everything printed so far to the reader."""
        self._stream.flush()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Notice within a second that whoever reads a pipe has gone, also while there is nothing to print.

        Raises:
            BrokenPipeError: The reader has gone; the body was cancelled where it waited.
        """
        body = asyncio.current_task()
        assert body is not None
        is_gone = False

        async def watch() -> None:
            nonlocal is_gone
            while not _reader_is_gone(self._stream):  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(_WATCH_SECONDS)
            is_gone = True
            body.cancel()

        watching = asyncio.ensure_future(watch())
        try:
            yield
        except asyncio.CancelledError:
            if not is_gone or body.uncancel() > 0:
                raise
            raise BrokenPipeError from None
        finally:
            watching.cancel()

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Print a table: cut to the terminal's width there, whole in a pipe.

        Args:
            columns: The columns, from left to right.
            rows: Cells of safe text, one for each column.
        """
        widths = [
            max(cell_len(column.name), *(cell_len(row[index]) for row in rows))
            if rows
            else cell_len(column.name)
            for index, column in enumerate(columns)
        ]
        if self.is_terminal:
            _shrink(widths, columns, self.console.width)
        self.write(_row(columns, widths, [column.name for column in columns], heading=True))
        for row in rows:
            self.write(_row(columns, widths, row, heading=False))


def _reader_is_gone(stream: TextIO) -> bool:
    """Tell whether a stream is a pipe that nobody reads; what cannot be asked is taken to be read."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(state & select.POLLERR for _, state in poll.poll(0))
    except (AttributeError, OSError, ValueError):
        return False  # no descriptor, as in a test, or a platform without poll


def _shrink(widths: list[int], columns: Sequence[Column], room: int) -> None:
    """Take width away from the widest column that may shrink until the row fits or none may."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    while excess > 0:
        able = [
            index
            for index, column in enumerate(columns)
            if column.shrinks_to is not None and widths[index] > column.shrinks_to
        ]
        if not able:
            return
        widest = max(able, key=lambda index: widths[index])
        widths[widest] -= 1
        excess -= 1


def _row(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str], *, heading: bool) -> Text:
    line = Text()
    for index, (column, width, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        if index:
            line.append(_GAP)
        fitted = cell
        if cell_len(cell) > width:
            fitted = set_cell_size(cell, width - 1) + "…"
        padding = " " * (width - cell_len(fitted))
        last = index == len(columns) - 1
        shown = padding + fitted if column.right else fitted + ("" if last else padding)
        line.append(shown, "dim" if heading else STATUS_STYLES.get(cell, column.style))
    return line


STATUS_STYLES: Final = {
    "live": "cyan",
    "ok": "green",
    "interrupted": "yellow",
    "torn": "yellow",
    "corrupt": "bold red",
    "unsupported": "red",
    "unknown": "dim",
}
"""Colours of the words a session's status is given in, wherever they stand alone."""


def screen() -> Screen:
    """Return standard output as it is now; not kept, because a caller may have replaced it."""
    return Screen(sys.stdout)


def notice(message: str) -> None:
    """Print a remark for people to standard error."""
    print(text.line(message), file=sys.stderr, flush=True)
