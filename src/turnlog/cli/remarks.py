"""Warnings and log records of the library as single lines on standard error.

Owns that routing for the length of one command. Errors are not its business; they go through `boundary`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import TextIO

from turnlog.transcripts import text


class _Lines(logging.Handler):
    """Prints records as they come; their tracebacks are for programs that configure logging themselves."""

    def __init__(self, as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._as_json = as_json

    def emit(self, record: logging.LogRecord) -> None:
        remark(record.getMessage(), as_json=self._as_json)


def remark(message: str, *, as_json: bool) -> None:
    """Print one warning on standard error.

    Args:
        message: What there is to say.
        as_json: Whether to print `{"warning": {"message": ...}}`.
    """
    shown = (
        text.json_line({"warning": {"message": message}})
        if as_json
        else f"turnlog: warning: {text.line(message)}"
    )
    with contextlib.suppress(OSError):
        print(shown, file=sys.stderr, flush=True)


@contextlib.contextmanager
def remarks(*, as_json: bool, quiet: bool) -> Iterator[None]:
    """Print what the library warns of as lines for people, or nothing at all.

    Args:
        as_json: As in `remark`.
        quiet: Whether warnings are dropped.
    """
    logger = logging.getLogger("turnlog")
    handler: logging.Handler = logging.NullHandler() if quiet else _Lines(as_json)

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not quiet:
            remark(str(message), as_json=as_json)

    with warnings.catch_warnings():
        warnings.showwarning = show
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
