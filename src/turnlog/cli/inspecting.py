"""`turnlog inspect` and `turnlog repair`: what a session's log is like, and committing its recovery.

Owns what the two print; looking is in `examine`, repairing is the store's.
"""

from __future__ import annotations

import click
from rich.text import Text

from turnlog.cli import boundary
from turnlog.cli.boundary import Finished
from turnlog.cli.examine import Examination, closer_name, examine
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.targets import opened
from turnlog.cli.terminal import STATUS_STYLES, Screen, screen
from turnlog.transcripts import text

EXIT_CODES = {"corrupt": boundary.CORRUPT, "unsupported": boundary.UNSUPPORTED}
"""Exit codes of `inspect` by status; every other status is 0."""

DAMAGE_SHOWN = 20
"""Most damaged places that are listed for people."""


@click.command()
@click.argument("session", metavar="ID")
@shared_options()
@pass_settings
def inspect(settings: Settings, session: str) -> None:
    """Say what a log holds and what a repair would do.

    Never writes.
    A damaged log is described as far as it can be read. Exit code 3 means damage, 4 a format that is not
    known here; live, ok, interrupted and torn are 0.
    """
    run(_inspect(settings, session))


async def _inspect(settings: Settings, session: str) -> None:
    async with opened(settings, session) as target:
        found = await examine(target.store, target.session_id, copied_from=target.copied_from)
    out = screen()
    if settings.as_json:
        out.json(found.as_json())
    else:
        _describe(out, found)
    if found.status in EXIT_CODES:
        raise Finished(EXIT_CODES[found.status])


def _describe(out: Screen, found: Examination) -> None:
    def put(name: str, value: str, style: str = "") -> None:
        out.write(Text.assemble((f"{name:<9}", "dim"), (value, style)))

    put("session", text.line(found.session_id), "bold")
    put("status", found.status, STATUS_STYLES.get(found.status, ""))
    if found.problem is not None:
        put("problem", text.line(found.problem), "red")
    if found.header is not None:
        put("created", f"{text.clock(found.header.created_at)} UTC")
        if found.header.cwd is not None:
            put("cwd", text.line(found.header.cwd))
    counts = (
        text.count(found.event_count, "event"),
        text.count(found.turns, "turn"),
        text.count(found.steps, "step"),
    )
    put("holds", ", ".join(counts))
    if found.torn is not None:
        put("torn", _torn(found), "yellow")
    for place in found.damage[:DAMAGE_SHOWN]:
        where = ", ".join(
            f"{name} {place[name]}" for name in ("line", "offset") if place.get(name) is not None
        )
        put(
            "damage",
            f"{text.line(str(place['kind']))} at {where.replace('offset', 'byte') or 'an unknown place'}",
            "red",
        )
    if len(found.damage) > DAMAGE_SHOWN:
        put("", f"… {text.count(len(found.damage) - DAMAGE_SHOWN, 'more damaged place')}")
    for closer in found.closers:
        put("closer", text.line(closer_name(closer.to_dict())), "yellow")
    if found.closers or found.torn is not None:
        put("", f"turnlog repair {text.line(found.session_id)} would commit this", "dim")


def _torn(found: Examination) -> str:
    torn = found.torn
    assert torn is not None
    what = (
        "an unfinished write at the end" if torn.size is None else f"the last {text.count(torn.size, 'byte')}"
    )
    where = "" if torn.offset is None else f", from byte {torn.offset:,} on"
    saved = (
        f"; {text.count(torn.recovered_events, 'event')} in it can be saved" if torn.recovered_events else ""
    )
    return what + where + saved


@click.command()
@click.argument("session", metavar="ID")
@click.option("--takeover", is_flag=True, help="Take the session away from a writer that still holds it.")
@shared_options()
@pass_settings
def repair(settings: Settings, session: str, takeover: bool) -> None:
    """Commit the recovery of an interrupted or torn session.

    Needs the whole id. A torn tail is kept aside and cut, an interrupted turn is kept whole and closed. Does
    nothing to a log that needs nothing, and refuses a damaged one.
    """
    run(_repair(settings, session, takeover))


async def _repair(settings: Settings, session: str, takeover: bool) -> None:
    async with opened(settings, session, exact=True, writes=True) as target:
        before = await target.store.inspect(target.session_id)
        after = await target.store.load(target.session_id, takeover=takeover)
    stored = len(before.events) - len(before.closers)
    appended = [closer_name(event.to_dict()) for event in after.events.iter_from(stored)]
    out = screen()
    if settings.as_json:
        out.json(
            {
                "id": target.session_id,
                "cut_bytes": before.torn.size if before.torn is not None else 0,
                "appended": [event.type for event in after.events.iter_from(stored)],
                "event_count": len(after.events),
            }
        )
        return
    if before.torn is not None:
        size = "the torn tail" if before.torn.size is None else text.count(before.torn.size, "torn byte")
        out.write(f"cut {size}, kept in the session's folder")
    for name in appended:
        out.write(f"appended {text.line(name)}")
    if before.torn is None and not appended:
        out.write("nothing to repair")
