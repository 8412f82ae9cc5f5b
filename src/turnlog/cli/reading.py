"""`turnlog show`, `events` and `tail`: a session's content on standard output.

Owns which form is printed for which options; the forms themselves are `cards`, `timeline` and JSON lines.
None of them writes to the store, and only `show` and the messages hold more than one event in memory.
"""

from __future__ import annotations

import click
from rich.text import Text

import turnlog
from turnlog.cli.cards import Drawing
from turnlog.cli.examine import status_of
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.progress import all_events
from turnlog.cli.targets import Target, opened
from turnlog.cli.terminal import STATUS_STYLES, Screen, screen
from turnlog.cli.timeline import event_line, event_lines
from turnlog.errors import UsageError
from turnlog.transcripts import text
from turnlog.transcripts.blocks import contents_text, record, source_label, string
from turnlog.transcripts.conversation import Conversation


@click.command()
@click.argument("session", metavar="ID")
@click.option("--events", "as_events", is_flag=True, help="Every event on a line, runs of chunks as one.")
@click.option("--messages", "as_messages", is_flag=True, help="The messages that the model sees next.")
@click.option("--full", is_flag=True, help="Long results and thoughts whole.")
@shared_options()
@pass_settings
def show(settings: Settings, session: str, as_events: bool, as_messages: bool, full: bool) -> None:
    """Show a session's conversation, with tool calls as cards.

    Shows what is stored: an answer that broke off and a turn without an end are marked as such.
    """
    if as_events and as_messages:
        raise UsageError("--events and --messages are two forms; give one of them")
    work = _show_events if as_events else _show_messages if as_messages else _show_conversation
    run(work(settings, session, full))


async def _show_conversation(settings: Settings, session: str, full: bool) -> None:
    async with opened(settings, session) as target:
        info = await status_of(target.store, target.session_id)
        conversation = Conversation()
        async for event in all_events(settings, target):
            conversation.feed(event)
        conversation.finish()
    out = screen()
    if settings.as_json:
        out.json({"id": target.session_id, "status": info.status, **conversation.as_json()})
        return
    _head(out, target, info, conversation)
    is_live = info.status == "live"
    out.lines(Drawing(out.console, out.width, full=full, is_live=is_live).lines(conversation))


def _head(out: Screen, target: Target, info: turnlog.SessionInfo, conversation: Conversation) -> None:
    if conversation.title:
        out.write(Text(text.line(conversation.title), "bold"))
    turns = sum(turn.number is not None for turn in conversation.turns)
    facts = [text.count(turns, "turn"), text.size(info.size)]
    if info.header is not None and info.header.cwd is not None:
        facts.append(text.line(info.header.cwd))
    out.write(
        Text.assemble(
            (text.line(target.session_id), "bold" if not conversation.title else ""),
            ("  ", ""),
            (info.status, STATUS_STYLES.get(info.status, "")),
            (" · " + " · ".join(facts), "dim"),
        )
    )
    out.blank()


async def _show_events(settings: Settings, session: str, full: bool) -> None:
    out = screen()
    async with opened(settings, session) as target:
        found = all_events(settings, target)
        if settings.as_json:
            out.json([event.to_dict() async for event in found])
        else:
            out.lines(event_lines([event async for event in found]))


async def _show_messages(settings: Settings, session: str, full: bool) -> None:
    async with opened(settings, session) as target:
        found = await target.store.inspect(target.session_id)
    messages = turnlog.derive_messages(found.events)
    out = screen()
    if settings.as_json:
        out.json(messages)
        return
    for number, message in enumerate(messages):
        if number:
            out.blank()
        who = f"{string(message.get('role'))}  {source_label(record(message.get('source')))}"
        out.write(Text(text.line(who), "bold"))
        said = text.block(_message_text(message)).split("\n")
        shown = said if full else said[:40]
        out.lines(f"  {row}" for row in shown)
        if len(shown) < len(said):
            out.write(Text(f"  … {text.count(len(said) - len(shown), 'more line')}, --full shows all", "dim"))


def _message_text(message: dict[str, object]) -> str:
    return contents_text(message.get("content"))


@click.command()
@click.argument("session", metavar="ID")
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Begin at this seq."
)
@shared_options()
@pass_settings
def events(settings: Settings, session: str, first: int) -> None:
    """Print a session's stored events, one JSON line each.

    Chunks that are stored packed are printed one by one; closers that a repair would add are not printed.
    """
    run(_events(settings, session, first))


async def _events(settings: Settings, session: str, first: int) -> None:
    out = screen()
    async with opened(settings, session) as target:
        async for event in target.store.iter_events(target.session_id, first):
            out.raw(_json_row(event))


@click.command()
@click.argument("session", metavar="ID")
@click.option(
    "-n",
    "--lines",
    "number",
    type=click.IntRange(min=0),
    default=20,
    metavar="N",
    help="Begin with the last N events; 20 when not given.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on as events become durable, until Ctrl-C.")
@shared_options()
@pass_settings
def tail(settings: Settings, session: str, number: int, follow: bool) -> None:
    """Print a session's last events and, with -f, those that follow.

    Those of other processes, too. One line each; with --json one JSON line each.
    """
    run(_tail(settings, session, number, follow))


async def _tail(settings: Settings, session: str, number: int, follow: bool) -> None:
    out = screen()

    def put(event: turnlog.SessionEvent) -> None:
        if settings.as_json:
            out.raw(_json_row(event))
        else:
            out.write(event_line(event))

    async with opened(settings, session) as target:
        # At least one is read to learn where the log ends.
        last = (await target.store.tail(target.session_id, max(number, 1))).events
        for event in last if number else ():
            put(event)
        if not follow:
            return
        out.flush()
        async with out.watched():
            async for event in target.store.follow(target.session_id, last.next_seq):
                put(event)
                out.flush()


def _json_row(event: turnlog.SessionEvent) -> str:
    return text.json_text(event.line.decode("utf-8")) + "\n"
