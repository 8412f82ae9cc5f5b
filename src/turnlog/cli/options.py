"""Options that every command shares, and how a command runs.

Owns where the settings come from: the group's options, then the command's own, which win. Opens nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

DEFAULT_STORE: Final = "jsonl:~/.turnlog/sessions"

STORE_GIVEN: Final = "turnlog.store_given"
"""Set in the context's `meta` when a `--store` option was written, not merely the environment variable."""

_T = TypeVar("_T")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(slots=True)
class Settings:
    """What holds for one run of the command line."""

    store: str | None = None
    """The store's URL as it was given, or None when nobody said anything."""
    as_json: bool = False
    quiet: bool = False

    @property
    def url(self) -> str:
        """The URL of the store to open."""
        # An empty one is no URL: a script's unset variable must not lead to somebody's own sessions.
        return DEFAULT_STORE if self.store is None else self.store


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def _assign(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(context.ensure_object(Settings), name, value)
            if name == "store" and context.get_parameter_source("store") is ParameterSource.COMMANDLINE:
                context.meta[STORE_GIVEN] = True

    return callback


def shared_options(*, envvar: bool = False) -> Callable[[_Function], _Function]:
    """Add `--store`, `--json` and `--quiet`, on the group and on each command alike.

    Args:
        envvar: Whether `TURNLOG_STORE` is read; only the group does, so that an option there wins over it.

    Returns:
        A decorator; the values go into the `Settings` of the run, not to the function.
    """

    def decorate(function: _Function) -> _Function:
        options = (
            click.option(
                "--store",
                metavar="URL",
                envvar="TURNLOG_STORE" if envvar else None,
                help=f"Where the sessions are; TURNLOG_STORE or {DEFAULT_STORE} when not given.",
                expose_value=False,
                callback=_assign("store"),
            ),
            click.option(
                "--json",
                is_flag=True,
                help="Print JSON, errors included.",
                expose_value=False,
                callback=_assign("as_json"),
            ),
            click.option(
                "-q",
                "--quiet",
                is_flag=True,
                help="Print results only, no notices and no progress.",
                expose_value=False,
                callback=_assign("quiet"),
            ),
        )
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a command's coroutine to its end; Ctrl-C cancels it, so stores are closed in order."""
    return asyncio.run(work)
