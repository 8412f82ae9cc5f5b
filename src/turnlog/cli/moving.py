"""`turnlog copy` and `turnlog salvage`: sessions into another store, whole ones and what is left of others.

Owns what the two print; the work is the store's.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import click

import turnlog
from turnlog.cli.boundary import Finished, exit_code
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.progress import counting
from turnlog.cli.targets import opened
from turnlog.cli.terminal import Screen, notice, screen
from turnlog.cli.verifying import FINDINGS_SHOWN, finding_line
from turnlog.errors import TurnlogError, UsageError, without_secrets
from turnlog.persistence.copying import CopiedSession
from turnlog.persistence.salvage import Keep, Salvage
from turnlog.transcripts import text

TO = click.option("--to", "to", metavar="URL", required=True, help="The store to write to.")


@click.command()
@click.argument("sessions", metavar="[ID]...", nargs=-1)
@TO
@click.option("--all", "everything", is_flag=True, help="Copy every session of the store.")
@click.option(
    "--parallel", type=click.IntRange(min=1), default=4, show_default=True, help="Sessions at a time."
)
@shared_options()
@pass_settings
def copy(settings: Settings, sessions: tuple[str, ...], to: str, everything: bool, parallel: int) -> None:
    """Copy sessions and their images into another store.

    The source is only read. Rows are carried as they are, so a plain file comes back byte for byte from any
    store; each copy is read back and compared by digest. Copying again takes up what was interrupted. A
    damaged session is named and not copied (see: turnlog salvage).
    """
    if everything == bool(sessions):
        raise UsageError("name the sessions to copy, or give --all, and not both")
    if to == settings.url:
        raise UsageError("a store cannot be copied into itself; give another URL with --to")
    run(_copy(settings, sessions, to, parallel))


async def _copy(settings: Settings, sessions: tuple[str, ...], to: str, parallel: int) -> None:
    out = screen()
    copied: list[CopiedSession] = []

    def told(session: CopiedSession) -> None:
        copied.append(session)
        _print_copy(settings, out, session)
        out.flush()

    async with turnlog.open(to) as target:
        with counting(settings, "copying", out) as progress:
            if not sessions:
                async with turnlog.open(settings.url) as store:
                    await store.copy(target, parallel=parallel, progress=progress, each=told)
            for name in sessions:
                told(await _copy_named(settings, name, target))
                progress(len(copied), len(sessions))
    if not copied and not settings.quiet:
        notice(f"no sessions in {without_secrets(settings.url)}")
    for session in copied:
        if session.error is not None:
            raise Finished(exit_code(session.error))


async def _copy_named(settings: Settings, name: str, target: turnlog.SessionStore) -> CopiedSession:
    """Copy what one name stands for; where that is nothing, the others are copied all the same."""
    try:
        async with opened(settings, name) as source:
            return (await source.store.copy(target, [source.session_id])).sessions[0]
    except TurnlogError as error:
        return CopiedSession(name, error=error)


def _print_copy(settings: Settings, out: Screen, copied: CopiedSession) -> None:
    if settings.as_json:
        out.json(copied.as_json())
        return
    name = text.line(copied.session_id or "?")
    if copied.error is not None:
        out.write(f"not copied  {name}  {text.line(str(copied.error))}")
        return
    what = f"copied      {name}  {text.count(copied.events, 'event')}"
    if copied.appended != copied.events:
        what += f", {copied.appended} of them new"
    if copied.torn_bytes:
        what += f"; {text.count(copied.torn_bytes, 'byte')} of an unfinished write at the end left out"
    if copied.missing_attachments:
        what += f"; {text.count(len(copied.missing_attachments), 'image')} missing or damaged in the source"
    out.write(what)


@click.command()
@click.argument("session", metavar="ID")
@TO
@click.option("--id", "new_id", metavar="NEW", help="Id of the new session.")
@click.option(
    "--prefix", is_flag=True, help="Only what stands before the first gap, up to the end of a turn."
)
@shared_options()
@pass_settings
def salvage(settings: Settings, session: str, to: str, new_id: str | None, prefix: bool) -> None:
    """Copy everything readable out of a damaged session into a new one.

    Needs the whole id. Prints the new id: the same one where it is free in the target, else a new one. Every
    event keeps its seq; a mark stands for each one that is gone. The original is only read.
    """
    run(_salvage(settings, session, to, new_id, "prefix" if prefix else "all"))


async def _salvage(settings: Settings, session: str, to: str, new_id: str | None, keep: Keep) -> None:
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(opened(settings, session, exact=True))
        # The same store opened twice would be two writers; within one, the new session has another id.
        same = to == settings.url and source.place == settings.url
        target = source.store if same else await stack.enter_async_context(turnlog.open(to))
        saved = await source.store.salvage(source.session_id, to=target, new_id=new_id, keep=keep)
    out = screen()
    if settings.as_json:
        out.json(saved.as_json())
        return
    out.write(text.line(saved.new_id))
    _describe(saved)


def _describe(saved: Salvage) -> None:
    out = screen()
    out.write(f"saved   {text.count(saved.events, 'event')}")
    for gap in saved.missing[:FINDINGS_SHOWN]:
        span = f"seq {gap.first_seq}" if len(gap) == 1 else f"seq {gap.first_seq} to {gap.last_seq}"
        out.write(f"lost    {text.count(len(gap), 'event')}, {span}")
    if len(saved.missing) > FINDINGS_SHOWN:
        out.write(f"        … {text.count(len(saved.missing) - FINDINGS_SHOWN, 'more gap')}")
    if saved.header_lost:
        out.write("lost    the header; the new one holds the id and a time only")
    if saved.set_aside:
        what = "it as it stands" if len(saved.set_aside) == 1 else "them as they stand"
        out.write(f"aside   {text.count(len(saved.set_aside), 'event')}, kept whole; no session takes {what}")
    if saved.missing_attachments:
        out.write(f"lost    {text.count(len(saved.missing_attachments), 'image')}, missing or damaged there")
    for finding in saved.findings[:FINDINGS_SHOWN]:
        out.write(
            f"{'found' if finding.severity == 'torn' else 'damage':<8}{finding_line(finding, saved.path)}"
        )
    if len(saved.findings) > FINDINGS_SHOWN:
        out.write(f"        … {text.count(len(saved.findings) - FINDINGS_SHOWN, 'more finding')}")
