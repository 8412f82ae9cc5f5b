"""The `turnlog` command group: its commands by name, in the order people meet them.

Owns names and help; each command lives in the module of its job.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version

import click

from turnlog.cli.options import shared_options

COMMANDS = {
    "demo": "turnlog.cli.demo:demo",
    "list": "turnlog.cli.listing:list_sessions",
    "show": "turnlog.cli.reading:show",
    "events": "turnlog.cli.reading:events",
    "tail": "turnlog.cli.reading:tail",
    "inspect": "turnlog.cli.inspecting:inspect",
    "verify": "turnlog.cli.verifying:verify",
    "repair": "turnlog.cli.inspecting:repair",
    "salvage": "turnlog.cli.moving:salvage",
    "copy": "turnlog.cli.moving:copy",
    "rm": "turnlog.cli.removing:remove",
    "fork": "turnlog.cli.forking:fork",
    "stats": "turnlog.cli.stats:stats",
    "export": "turnlog.cli.exporting:export",
    "import": "turnlog.cli.importing:import_sessions",
}
"""Where each command is; loaded when it is run, or when all of them are listed."""


class _Lazy(click.Group):
    """A group that loads the module of a command when the command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and (close := get_close_matches(args[0], COMMANDS, 1)):
            raise click.UsageError(f"no such command {args[0]!r}; did you mean {close[0]!r}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Lazy,
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
