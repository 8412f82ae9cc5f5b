"""`turnlog verify`: whether stored logs are good to their last byte.

Owns what is printed and the exit code; the verdict is the store's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import click
from rich.text import Text

import turnlog
from turnlog.backends.jsonl.layout import ENCODING_OF_NAME
from turnlog.cli import boundary
from turnlog.cli.boundary import Finished
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.progress import counting
from turnlog.cli.targets import opened
from turnlog.cli.terminal import STATUS_STYLES, Screen, screen
from turnlog.errors import TurnlogError, UsageError
from turnlog.persistence.survey import Finding
from turnlog.persistence.verification import Verification
from turnlog.transcripts import text

EXIT_CODES = {"unsupported": boundary.UNSUPPORTED}
"""Exit codes of what is not good by status; every other one is damage."""

GRAVEST = (
    boundary.CORRUPT,
    boundary.UNSUPPORTED,
    boundary.FAILED,
    boundary.NOT_FOUND,
    boundary.USAGE,
    boundary.BUSY,
)
"""Of several exit codes the first one of these is given."""

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
    codes: set[int] = set()
    count = damaged = 0
    async for found in _verdicts(settings, sessions, parallel, out):
        if isinstance(found, TurnlogError):
            out.flush()
            codes.add(boundary.tell(found, as_json=settings.as_json))
            continue
        count += 1
        if not found.is_good:
            damaged += 1
            codes.add(EXIT_CODES.get(found.status, boundary.CORRUPT))
        if settings.as_json:
            out.json(found.as_json())
        else:
            _describe(out, found)
        out.flush()
    if not settings.as_json and (count != 1 or not sessions):
        out.write(f"{text.count(count, 'session')} checked, {damaged} damaged or not readable here")
    if codes:
        raise Finished(min(codes, key=GRAVEST.index))


async def _verdicts(
    settings: Settings, sessions: tuple[str, ...], parallel: int, out: Screen
) -> AsyncIterator[Verification | TurnlogError]:
    if not sessions:
        async with turnlog.open(settings.url) as store:
            with counting(settings, "verifying", out) as progress:
                async for found in store.verify_all(parallel=parallel, progress=progress):
                    yield found
        return
    for name in sessions:
        yield await _verdict(settings, name)


async def _verdict(settings: Settings, name: str) -> Verification | TurnlogError:
    """Return the verdict on one name, or why there is none: the other names are looked at all the same."""
    try:
        async with opened(settings, name) as target:
            return await target.store.verify(target.session_id)
    except TurnlogError as error:
        return error


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
        out.write(Text.assemble("  ", (finding_line(finding, found.path), SEVERITY_STYLES[finding.severity])))
    if len(found.findings) > FINDINGS_SHOWN:
        out.write(f"  … {text.count(len(found.findings) - FINDINGS_SHOWN, 'more finding')}")
    if found.missing:
        gone = sum(len(gap) for gap in found.missing)
        out.write(f"  {text.count(gone, 'event')} certainly missing; turnlog salvage saves the others")


def finding_line(finding: Finding, path: str | None) -> str:
    """Say in one line, safe for a terminal, what was found and where.

    Args:
        finding: One finding.
        path: Where the log is; outside of files a place is not a byte but the first seq of a stored batch.
    """
    is_file = path is not None and Path(path).name in ENCODING_OF_NAME
    places = (
        ("line", finding.line),
        ("byte" if is_file else "the batch of seq", finding.offset),
        ("seq", None if not is_file and finding.seq == finding.offset else finding.seq),
    )
    where = [f"{label} {value:,}" for label, value in places if value is not None]
    place = f" at {', '.join(where)}" if where else ""
    return text.line(f"{finding.kind}{place}: {finding.reason}")
