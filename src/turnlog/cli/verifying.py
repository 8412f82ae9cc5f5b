"""`turnlog verify`: whether stored logs are good to their last byte.

Owns what is printed and the exit code; the verdict is the store's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import click
from rich.text import Text

import turnlog
from turnlog.cli import boundary
from turnlog.cli.boundary import Finished
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.progress import counting
from turnlog.cli.targets import opened
from turnlog.cli.terminal import STATUS_STYLES, Screen, screen
from turnlog.errors import UsageError
from turnlog.persistence.survey import Finding
from turnlog.persistence.verification import Verification
from turnlog.transcripts import text

EXIT_CODES = {"corrupt": boundary.CORRUPT, "unknown": boundary.CORRUPT, "unsupported": boundary.UNSUPPORTED}
"""Exit codes by status, the gravest first; every other status is 0."""

SEVERITY_STYLES = {"damage": "red", "torn": "yellow", "order": "yellow", "note": "dim"}

FINDINGS_SHOWN = 20
"""Most findings of one session that are listed for people."""


@click.command()
@click.argument("sessions", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Check every session of the store.")
@click.option(
    "--parallel", type=click.IntRange(min=1), default=4, show_default=True, help="Sessions at a time."
)
@shared_options()
@pass_settings
def verify(settings: Settings, sessions: tuple[str, ...], everything: bool, parallel: int) -> None:
    """Check stored logs to their last byte.

    Never writes.
    Checks frames and checksums, rows, seq, the header and its path, the order of turns, steps and calls,
    pairing, images, and names what repairs have kept aside. Exit code 3 means that something is damaged,
    4 a format that is not known here. A torn tail or a broken order of events is reported and is no failure.
    """
    if everything == bool(sessions):
        raise UsageError("name the sessions to verify, or give --all, and not both")
    run(_verify(settings, sessions, parallel))


async def _verify(settings: Settings, sessions: tuple[str, ...], parallel: int) -> None:
    out = screen()
    worst = boundary.OK
    count = damaged = 0
    async for found in _verdicts(settings, sessions, parallel):
        count += 1
        damaged += not found.is_good
        code = EXIT_CODES.get(found.status, boundary.OK)
        if worst != boundary.CORRUPT and code != boundary.OK:
            worst = code
        if settings.as_json:
            out.json(found.as_json())
        else:
            _describe(out, found)
    if not settings.as_json and (count != 1 or not sessions):
        out.write(f"{text.count(count, 'session')} checked, {damaged} damaged or not readable here")
    if worst != boundary.OK:
        raise Finished(worst)


async def _verdicts(
    settings: Settings, sessions: tuple[str, ...], parallel: int
) -> AsyncIterator[Verification]:
    if not sessions:
        async with turnlog.open(settings.url) as store:
            with counting(settings, "verifying") as progress:
                async for found in store.verify_all(parallel=parallel, progress=progress):
                    yield found
        return
    for name in sessions:
        async with opened(settings, name) as target:
            yield await target.store.verify(target.session_id)


def _describe(out: Screen, found: Verification) -> None:
    name = text.line(found.session_id or found.path or "?")
    out.write(
        Text.assemble(
            (f"{found.status:<12}", STATUS_STYLES.get(found.status, "")),
            (name, "bold"),
            f"  {text.count(found.event_count, 'event')}",
        )
    )
    for finding in found.findings[:FINDINGS_SHOWN]:
        out.write(Text.assemble("  ", (finding_line(finding), SEVERITY_STYLES[finding.severity])))
    if len(found.findings) > FINDINGS_SHOWN:
        out.write(f"  … {text.count(len(found.findings) - FINDINGS_SHOWN, 'more finding')}")
    if found.missing:
        gone = sum(len(gap) for gap in found.missing)
        out.write(f"  {text.count(gone, 'event')} certainly missing; turnlog salvage saves the others")


def finding_line(finding: Finding) -> str:
    """Say in one line, safe for a terminal, what was found and where.

    Args:
        finding: One finding.
    """
    where = [
        f"{label} {value:,}"
        for label, value in (("line", finding.line), ("byte", finding.offset), ("seq", finding.seq))
        if value is not None
    ]
    place = f" at {', '.join(where)}" if where else ""
    return text.line(f"{finding.kind}{place}: {finding.reason}")
