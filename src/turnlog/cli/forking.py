"""`turnlog fork`: a new session that begins with what another one holds.

Owns the meaning of `--at` as a turn; where a log may be split is the session's rule.
"""

from __future__ import annotations

import click

from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.targets import Target, opened
from turnlog.cli.terminal import screen
from turnlog.errors import ForkError
from turnlog.transcripts import text
from turnlog.transcripts.blocks import record


@click.command()
@click.argument("session", metavar="ID")
@click.option(
    "--at", "turn", type=click.IntRange(min=1), metavar="TURN", help="Fork after the end of this turn."
)
@shared_options()
@pass_settings
def fork(settings: Settings, session: str, turn: int | None) -> None:
    """Make a new session from the beginning of another one.

    Prints its id. The new session holds everything up to the end of TURN, and the source is only read.
    Without --at it holds everything, and an interrupted last turn of the source is repaired first.
    """
    run(_fork(settings, session, turn))


async def _fork(settings: Settings, session: str, turn: int | None) -> None:
    async with opened(settings, session, writes=True) as target:
        at = None if turn is None else await _end_of(target, turn)
        async with target.store.fork(target.session_id, at=at) as child:
            inherited = child.header.seed_length or 0
    out = screen()
    if settings.as_json:
        out.json({"id": child.id, "parent": target.session_id, "inherited_events": inherited, "turn": turn})
        return
    out.write(text.line(child.id))


async def _end_of(target: Target, turn: int) -> int:
    last = 0
    async for event in target.store.iter_events(target.session_id):
        if event.type == "turn/start":
            last += 1
        if event.type == "turn/end" and record(event.data).get("turn") == turn:
            return event.seq
    raise ForkError(
        session_id=target.session_id,
        reason=f"turn {turn} has not ended in this log, which has {text.count(last, 'turn')}",
        kind="invalid-boundary",
    )
