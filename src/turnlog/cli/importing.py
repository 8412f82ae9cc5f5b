"""`turnlog import`: sessions from elsewhere into the store.

Owns the command and what it prints. Bundles are checked and unpacked beside the store, then copied like any
session, so that an import is whole, can be repeated, and never changes what is there.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import click

import turnlog
from turnlog import transcripts
from turnlog.cli import boundary
from turnlog.cli.boundary import Finished, exit_code
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.terminal import screen
from turnlog.errors import LogError, UsageError
from turnlog.transcripts import text

SOURCES = ("bundle",)


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--from", "source", type=click.Choice(SOURCES), default="bundle", help="What the files are.")
@shared_options()
@pass_settings
def import_sessions(settings: Settings, paths: tuple[Path, ...], source: str) -> None:
    """Take sessions into the store.

    bundle: files made by `turnlog export --format bundle`. Every digest is checked before anything is stored.
    A session that is there already is left as it is if it is the same, and is an error if it is another one.
    """
    run(_import(settings, paths))


async def _import(settings: Settings, paths: tuple[Path, ...]) -> None:
    codes: list[int] = []
    async with turnlog.open(settings.url) as store:
        for path in paths:
            try:
                codes += await _import_bundle(settings, store, path)
            except (LogError, UsageError, OSError) as error:
                screen().flush()
                codes.append(boundary.tell(error, as_json=settings.as_json))
    if codes:
        raise Finished(codes[0])


async def _import_bundle(settings: Settings, store: turnlog.SessionStore, path: Path) -> list[int]:
    """Take what one bundle holds, and return the exit codes of the sessions that could not be taken."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-"))
    try:
        unpacked = transcripts.unpack_bundle(path, folder)
        async with turnlog.open(f"jsonl:{folder}") as source:
            report = await source.copy(store, unpacked.session_ids)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failures = [session.error for session in report.sessions if session.error is not None]
    facts = [session.as_json() | {"bundle": str(path)} for session in report.sessions]
    if settings.as_json:
        screen().json(facts)
        return [exit_code(error) for error in failures]
    for session in report.sessions:
        if session.error is not None:
            screen().write(
                f"not taken  {text.line(str(session.session_id))}  {text.line(str(session.error))}"
            )
            continue
        what = "was there already" if session.appended == 0 else f"{text.count(session.events, 'event')}"
        screen().write(f"{text.line(str(session.session_id))}  {what}")
    return [exit_code(error) for error in failures]
