"""`turnlog stats`: the figures of one session.

Owns their layout; the counting is in `figures`.
"""

from __future__ import annotations

import click
from rich.text import Text

from turnlog.cli.examine import status_of
from turnlog.cli.figures import Figures
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.progress import all_events
from turnlog.cli.targets import opened
from turnlog.cli.terminal import screen
from turnlog.transcripts import text


@click.command()
@click.argument("session", metavar="ID")
@shared_options()
@pass_settings
def stats(settings: Settings, session: str) -> None:
    """Print a session's figures: turns, times, tokens, bytes.

    Model time runs from the start of a step to its answer, first token to the first piece of it that says
    something; tool time from each call to its result.
    """
    run(_stats(settings, session))


async def _stats(settings: Settings, session: str) -> None:
    figures = Figures()
    async with opened(settings, session) as target:
        info = await status_of(target.store, target.session_id)
        async for event in all_events(settings, target):
            figures.feed(event)
    out = screen()
    if settings.as_json:
        out.json({"id": target.session_id, "status": info.status, "bytes": info.size, **figures.as_json()})
        return
    for name, value in rows(figures, info.size):
        out.write(Text.assemble((f"{name:<14}", "dim"), value))


def rows(figures: Figures, stored: int) -> list[tuple[str, str]]:
    """Give the figures as name and value, in the order they are shown.

    Args:
        figures: The finished fold.
        stored: Bytes on the medium.

    Returns:
        Text for people, safe for a terminal.
    """
    of = figures.as_json()
    tokens = of["tokens"]
    cached = tokens["cache_read"]
    billed = tokens["input"] + cached + tokens["cache_write"]
    share = f" ({100 * cached / billed:.0f} % from the cache)" if cached else ""
    rate = f" · {of['tokens_per_second']:,.0f} tokens/s" if of["tokens_per_second"] is not None else ""
    chunks = f" ({100 * figures.chunks / figures.events:.0f} % streamed chunks)" if figures.events else ""
    each = f" · {stored / figures.events:.1f} bytes per event" if figures.events else ""
    ends = ", ".join(f"{number} {text.line(kind)}" for kind, number in sorted(figures.ends.items()))
    failures = f", {figures.tool_failures:,} failed" if figures.tool_failures else ""
    span = None
    if figures.first_time is not None and figures.last_time is not None:
        span = figures.last_time - figures.first_time
    return [
        ("turns", f"{figures.turns:,}" + (f" ({ends})" if ends else "")),
        ("steps", f"{figures.steps:,}"),
        ("messages", f"{figures.messages:,}"),
        ("tool calls", f"{figures.tool_calls:,}{failures}"),
        ("model time", f"{text.duration(figures.model_ms)}{rate}"),
        ("tool time", text.duration(figures.tool_ms)),
        (
            "first token",
            text.duration(of["first_token_ms"]) + (" on average" if of["first_token_ms"] is not None else ""),
        ),
        ("tokens", f"{billed:,} in{share}, {tokens['output']:,} out"),
        ("events", f"{figures.events:,}{chunks}"),
        ("stored", f"{text.size(stored)}{each}"),
        ("span", f"{text.duration(span)}, from {text.clock(figures.first_time)} UTC"),
    ]
