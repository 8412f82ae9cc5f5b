"""Where every outcome of a command becomes an exit code and at most one line on standard error.

Owns the mapping from errors to exit codes and their text; commands raise and never exit. Nothing else
prints to standard error except progress and notices.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

import click

from turnlog.cli.remarks import remarks
from turnlog.errors import (
    CorruptLogError,
    ForkError,
    InvalidSessionIdError,
    SessionBusyError,
    SessionNotFoundError,
    TurnlogError,
    UnsupportedFormatError,
    UsageError,
    WriterFencedError,
)
from turnlog.transcripts import text

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
CORRUPT: Final = 3
UNSUPPORTED: Final = 4
BUSY: Final = 5
NOT_FOUND: Final = 6
INTERRUPTED: Final = 130

_EXIT_CODES: Final[tuple[tuple[type[TurnlogError], int], ...]] = (
    (UsageError, USAGE),
    (InvalidSessionIdError, USAGE),
    (ForkError, USAGE),
    (CorruptLogError, CORRUPT),
    (UnsupportedFormatError, UNSUPPORTED),
    (SessionBusyError, BUSY),
    (WriterFencedError, BUSY),
    (SessionNotFoundError, NOT_FOUND),
)


class Finished(Exception):
    """A command that has said everything it has to say and ends with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def exit_code(error: TurnlogError) -> int:
    """Return the exit code that stands for an error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILED)


def run(arguments: Sequence[str]) -> int:
    """Run the command line with these arguments and return its exit code; raises nothing.

    Args:
        arguments: Without the program's name.

    Returns:
        See `turnlog.cli.main.main`.
    """
    _prepare_streams()
    as_json = has_flag(arguments, "--json")
    quiet = has_flag(arguments, "-q", "--quiet")
    try:
        with remarks(as_json=as_json, quiet=quiet):
            return _outcome(arguments, as_json)
    except KeyboardInterrupt:
        return INTERRUPTED


def _prepare_streams() -> None:
    """Make both streams take any text: UTF-8 in a pipe, escapes for what a terminal cannot show."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # The descriptor was closed by whoever started this process.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _outcome(arguments: Sequence[str], as_json: bool) -> int:
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _drop_stdout()
        return INTERRUPTED
    except BaseExceptionGroup as group:
        return _report_group(group, as_json)
    except BaseException as error:  # noqa: BLE001 - the last boundary: everything becomes one line
        return _report(error, as_json)


def _invoke(arguments: Sequence[str]) -> int:
    from turnlog.cli.app import cli

    # Not cli.main(): that one exits by itself on a closed pipe and on Ctrl-C.
    try:
        with cli.make_context("turnlog", list(arguments)) as context:
            cli.invoke(context)
    except click.exceptions.Exit as outcome:
        return outcome.exit_code
    except Finished as outcome:
        return outcome.code
    return OK


def _report_group(group: BaseExceptionGroup[BaseException], as_json: bool) -> int:
    """Report the first error of a group; closing a store can fail in several places at once."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return _report(first, as_json)


def _report(error: BaseException, as_json: bool) -> int:
    if isinstance(error, BrokenPipeError):
        # Whoever read the output has seen enough, as `head` does.
        _drop_stdout()
        return OK
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        _drop_stdout()
        return INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    try:
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    return tell(error, as_json=as_json)


def tell(error: BaseException, *, as_json: bool) -> int:
    """Print one error as a line on standard error, and return its exit code.

    A command that goes on after it says so with `Finished` at its end.

    Args:
        error: What went wrong.
        as_json: Whether to print `{"error": {"code": ..., "message": ...}}`.
    """
    code, name, message, details = describe(error)
    if os.environ.get("TURNLOG_DEBUG") and not isinstance(error, click.ClickException):
        traceback.print_exception(error)
    if as_json:
        shown = text.json_line({"error": {"code": name, "message": message, **details}})
    else:
        shown = f"turnlog: {text.line(message)}"
    with contextlib.suppress(OSError):
        print(shown, file=sys.stderr, flush=True)
    return code


def describe(error: BaseException) -> tuple[int, str, str, dict[str, object]]:
    """Say what an error is.

    Args:
        error: Anything that left a command.

    Returns:
        Exit code, stable name, one sentence, and JSON details.
    """
    if isinstance(error, TurnlogError):
        details = {name: value for name, value in error.details().items() if name not in ("code", "message")}
        return exit_code(error), error.code, str(error), details
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        where = f"{context.command_path} --help" if context is not None else "turnlog --help"
        return USAGE, "usage", f"{error.format_message().rstrip('.')} (see: {where})", {}
    if isinstance(error, OSError):
        what = error.strerror or type(error).__name__
        place = f": {error.filename}" if error.filename else ""
        return FAILED, "system-error", f"{what}{place}", {}
    if isinstance(error, MemoryError):
        return FAILED, "out-of-memory", "not enough memory", {}
    message = f"unexpected {type(error).__name__}: {error} (set TURNLOG_DEBUG=1 to see where it came from)"
    return FAILED, "unexpected", message, {}


def has_flag(arguments: Sequence[str], *names: str) -> bool:
    """Tell whether one of these flags is among the arguments, also where they cannot be parsed otherwise."""
    options = itertools.takewhile(lambda argument: argument != "--", arguments)
    return any(argument in names for argument in options)


def _drop_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's exit does not complain about it."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(devnull, sys.stdout.fileno())
        finally:
            os.close(devnull)
