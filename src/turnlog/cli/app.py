"""The `turnlog` command group: its commands by name, in the order people meet them.

Owns names and help; each command lives in the module of its job.
"""

from __future__ import annotations

from importlib.metadata import version

import click

from turnlog.cli.demo import demo
from turnlog.cli.exporting import export
from turnlog.cli.forking import fork
from turnlog.cli.importing import import_sessions
from turnlog.cli.inspecting import inspect, repair
from turnlog.cli.listing import list_sessions
from turnlog.cli.moving import copy, salvage
from turnlog.cli.options import shared_options
from turnlog.cli.reading import events, show, tail
from turnlog.cli.removing import remove
from turnlog.cli.stats import stats
from turnlog.cli.verifying import verify

COMMANDS: tuple[click.Command, ...] = (
    demo,
    list_sessions,
    show,
    events,
    tail,
    inspect,
    verify,
    repair,
    salvage,
    copy,
    remove,
    fork,
    stats,
    export,
    import_sessions,
)


class _InOrder(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_InOrder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(version("turnlog"), "--version", prog_name="turnlog", message="%(prog)s %(version)s")
@shared_options(envvar=True)
@click.pass_context
def cli(context: click.Context) -> None:
    """Read and repair the session logs of LLM agents.

    ID is a session id, a unique prefix of one, or the path of a session.jsonl or session.jsonl.zstd file.

    \b
    Exit codes: 0 ok, 1 failed, 2 usage, 3 corrupt, 4 unsupported format, 5 busy, 6 not found.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in COMMANDS:
    cli.add_command(_command)
