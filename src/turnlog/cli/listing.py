"""`turnlog list`: the sessions of a store, newest first, each with a status.

Owns the order, the filters and the table; what a status means is the store's business.
"""

from __future__ import annotations

import time
from typing import Any, Final, get_args

import click

import turnlog
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.terminal import Column, notice, screen
from turnlog.errors import without_secrets
from turnlog.persistence.backend import Status
from turnlog.transcripts import text

PAGE: Final = 50
"""Sessions shown on a terminal when no limit is given."""

_COLUMNS: Final = (
    Column("ID", "bold"),
    Column("STATUS"),
    Column("TITLE", shrinks_to=12),
    Column("TURNS", right=True),
    Column("SIZE", right=True),
    Column("LAST ACTIVITY"),
    Column("CWD", "dim", shrinks_to=10),
)


@click.command("list")
@click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help=f"At most N; {PAGE} on a terminal, else all."
)
@click.option("--status", type=click.Choice(get_args(Status)), help="Only sessions with this status.")
@click.option("--cwd", metavar="DIR", help="Only sessions that were started in this directory.")
@shared_options()
@pass_settings
def list_sessions(settings: Settings, limit: int | None, status: Status | None, cwd: str | None) -> None:
    """List sessions, newest first.

    The status is one of live (a writer holds it), ok, interrupted (a turn has no end), torn (the last write
    was cut off), corrupt, unsupported and unknown. It comes from the header and the end of each log only.
    """
    found = sorted(run(_collect(settings.url, status, cwd)), key=_activity, reverse=True)
    out = screen()
    if limit is None and out.is_terminal and not settings.as_json:
        limit = PAGE
    shown = found if limit is None else found[:limit]
    if settings.as_json:
        out.json([as_json(info) for info in shown])
        return
    if not found:
        if not settings.quiet:
            notice(f"no sessions in {without_secrets(settings.url)}")
        return
    now = time.time_ns() // 1_000_000
    out.table(_COLUMNS, [_cells(info, now) for info in shown])
    if len(shown) < len(found) and not settings.quiet:
        out.flush()
        notice(f"{len(found) - len(shown)} more, --limit {len(found)} shows all")


async def _collect(url: str, status: Status | None, cwd: str | None) -> list[turnlog.SessionInfo]:
    async with turnlog.open(url) as store:
        return [info async for info in store.list(cwd=cwd, status=status)]


def _activity(info: turnlog.SessionInfo) -> int:
    if info.summary is not None and info.summary.last_time is not None:
        return info.summary.last_time
    if info.last_write is not None:
        return info.last_write
    return info.header.created_at if info.header is not None else 0


def _cells(info: turnlog.SessionInfo, now: int) -> list[str]:
    summary = info.summary
    title = summary.title if summary is not None and summary.title else ""
    return [
        text.line(info.session_id) if info.session_id is not None else "?",
        info.status,
        text.summary(title, 60) or text.line(info.problem or "") or "–",
        str(summary.turns) if summary is not None else "–",
        text.size(info.size),
        text.ago(_activity(info) or None, now),
        text.line(info.header.cwd) if info.header is not None and info.header.cwd is not None else "–",
    ]


def as_json(info: turnlog.SessionInfo) -> dict[str, Any]:
    """Give one listed session for programs; what is unknown is null."""
    summary = info.summary
    return {
        "id": info.session_id,
        "status": info.status,
        "title": summary.title if summary is not None else None,
        "turns": summary.turns if summary is not None else None,
        "steps": summary.steps if summary is not None else None,
        "open_turn": summary.open_turn if summary is not None else None,
        "bytes": info.size,
        "last_activity": _activity(info) or None,
        "cwd": info.header.cwd if info.header is not None else None,
        "created_at": info.header.created_at if info.header is not None else None,
        "header": info.header.to_dict() if info.header is not None else None,
        "path": info.path,
        "problem": info.problem,
    }
