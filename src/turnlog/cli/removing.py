"""`turnlog rm`: erasing sessions, after asking.

Owns the question and what is printed; erasing is the store's.
"""

from __future__ import annotations

import sys

import click

import turnlog
from turnlog.cli import boundary
from turnlog.cli.boundary import Finished
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.targets import opened
from turnlog.cli.terminal import notice, screen
from turnlog.errors import UsageError
from turnlog.persistence.erasing import Erasure
from turnlog.transcripts import text

FORKS_SHOWN = 5


HELD_BACK = (
    "a reader holds the database's log back, so content is still in it; "
    "once it is gone, turnlog rm --remains finishes this"
)


@click.command("rm")
@click.argument("session", metavar="[ID]", required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask; needed where there is no terminal.")
@click.option("--with-forks", is_flag=True, help="Erase the sessions that were forked from it, too.")
@click.option("--takeover", is_flag=True, help="Take the session away from a writer that still holds it.")
@click.option("--remains", is_flag=True, help="Finish earlier erasures that a reader has held back.")
@shared_options()
@pass_settings
def remove(
    settings: Settings, session: str | None, yes: bool, with_forks: bool, takeover: bool, remains: bool
) -> None:
    """Erase a session: its log, all that is kept beside it, its own images.

    Needs the whole id, and asks on a terminal. Forks keep the part that they began with and are named. What
    backups, replicas and the disk itself still hold is out of reach. Where a reader of a database holds
    content back, the exit code is 1, and --remains finishes it later.
    """
    if remains == (session is not None):
        raise UsageError("name the session to erase, or give --remains, and not both")
    run(_finish(settings) if session is None else _remove(settings, session, yes, with_forks, takeover))


async def _finish(settings: Settings) -> None:
    async with turnlog.open(settings.url) as store:
        erased = await store.erase_remains()
    if settings.as_json:
        screen().json({"erased": erased})
    elif not settings.quiet:
        notice("nothing is left" if erased else HELD_BACK)
    if not erased:
        raise Finished(boundary.FAILED)


async def _remove(settings: Settings, session: str, yes: bool, with_forks: bool, takeover: bool) -> None:
    async with opened(settings, session, exact=True, writes=True) as target:
        if not yes:
            _ask(target.session_id, await target.store.forks_of(target.session_id), with_forks)
        done = await target.store.delete(target.session_id, takeover=takeover, with_forks=with_forks)
    out = screen()
    if settings.as_json:
        out.json(done.as_json())
    else:
        for session_id in done.deleted:
            out.write(f"erased {text.line(session_id)}")
        if done.attachments:
            out.write(f"erased {text.count(len(done.attachments), 'image')}")
    if not settings.quiet and not settings.as_json:
        _remark(done)
    if not done.erased:
        raise Finished(boundary.FAILED)


def _ask(session_id: str, forks: tuple[str, ...], with_forks: bool) -> None:
    if not sys.stdin.isatty():
        raise UsageError("rm asks on a terminal; where there is none, give --yes")
    what = f"Erase {text.line(session_id)}"
    if forks and with_forks:
        what += f" and {text.count(len(forks), 'fork')} of it ({_listed(forks)})"
    elif forks:
        what = f"{_keepers(forks)}. {what} alone"
    if not click.confirm(f"{what}?", err=True):
        raise click.Abort


def _remark(done: Erasure) -> None:
    if done.forks:
        notice(f"{_keepers(done.forks)} (--with-forks erases forks, too)")
    kept = len(done.kept_attachments)
    if kept:
        notice(f"{text.count(kept, 'image')} {'stays' if kept == 1 else 'stay'}: named elsewhere, too")
    if not done.erased:
        notice(HELD_BACK)


def _keepers(forks: tuple[str, ...]) -> str:
    keep = "keeps the part it" if len(forks) == 1 else "keep the part they"
    return f"{text.count(len(forks), 'fork')} {keep} began with: {_listed(forks)}"


def _listed(forks: tuple[str, ...]) -> str:
    shown = ", ".join(text.line(fork) for fork in forks[:FORKS_SHOWN])
    return shown + (", …" if len(forks) > FORKS_SHOWN else "")
