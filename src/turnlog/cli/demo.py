"""`turnlog demo`: a recorded turn is killed in the middle of a tool call, inspected, repaired and finished.

Owns the parent's side: real processes, real files, no network. Every claim it prints is checked; one that
is not so makes the command fail. The agent is in `demo_agent`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

import turnlog
from turnlog.backends.jsonl.layout import ENCODING_OF_NAME
from turnlog.cli.boundary import FAILED, Finished
from turnlog.cli.demo_agent import Office, second_turn
from turnlog.cli.examine import closer_name, examine, status_of
from turnlog.cli.options import STORE_GIVEN, Settings, pass_settings, run, shared_options
from turnlog.cli.terminal import STATUS_STYLES, Screen, screen
from turnlog.errors import TurnlogError, UsageError, without_secrets
from turnlog.opening import parse_store_url
from turnlog.session.ids import new_session_id
from turnlog.transcripts import text
from turnlog.transcripts.blocks import block_text, records

LABEL: Final = 12
"""Columns of the label in front of a fact."""

CLOSERS: Final = [
    "tool/result c-2 TOOL_OUTCOME_UNKNOWN",
    "tool/result c-3 TOOL_NOT_STARTED",
    "step/end",
    "turn/end interrupted",
]
"""What a repair of the killed turn has to add, no more and no less."""


class Narration:
    """What the demo prints, and the count of its claims."""

    def __init__(self, out: Screen) -> None:
        self._out = out
        self._room = None if out.width is None else max(out.width - LABEL - 3, 20)
        self._step = itertools.count(1)
        self.checked = 0
        self.failed: list[str] = []

    def title(self, name: str, what: str) -> None:
        """Begin the next part."""
        self._out.blank()
        self._out.write(Text.assemble((f"{next(self._step)} {name}", "bold cyan"), (f"  {what}", "")))

    def say(self, label: str, what: str, style: str = "") -> None:
        """Print one fact; on a terminal what does not fit goes on below itself."""
        whole = text.line(what)
        rows = [whole] if self._room is None else textwrap.wrap(whole, self._room) or [whole]
        for number, row in enumerate(rows):
            head = label if number == 0 else ""
            self._out.write(Text.assemble((f"  {head:<{LABEL}} ", "dim"), (row, style)))

    def quote(self, label: str, what: str) -> None:
        """Print the beginning of what somebody said, on one line."""
        self.say(label, text.summary(what, self._room or 90))

    def claim(self, what: str, holds: bool) -> None:
        """Print a claim that has been checked."""
        self.checked += 1
        if not holds:
            self.failed.append(what)
        mark, style = ("✓", "green") if holds else ("✗ NOT SO:", "bold red")
        self._out.write(Text.assemble((f"  {mark} ", style), (text.line(what), "" if holds else "red")))

    def end(self) -> None:
        """Print the verdict; raises `Finished` when a claim did not hold."""
        self._out.blank()
        if self.failed:
            self._out.write(
                Text(f"✗ {len(self.failed)} of {text.count(self.checked, 'claim')} did not hold", "bold red")
            )
            raise Finished(FAILED)
        self._out.write(Text(f"✓ all {self.checked} claims hold", "bold green"))


class Child:
    """The process that records the turn, seen from outside: what it said is durable, and its end."""

    def __init__(self, url: str, session_id: str, folder: Path) -> None:
        command = [sys.executable, "-m", "turnlog.cli.demo_agent", url, session_id, str(folder)]
        # In a session of its own: Ctrl-C is for this process, which then ends the child.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        self.acknowledged: list[dict[str, Any]] = []

    def watch(self, narration: Narration) -> None:
        """Print what becomes durable until the child stands inside the tool body.

        Raises:
            TurnlogError: The child failed or ended before that.
        """
        assert self.process.stdout is not None
        for row in self.process.stdout:
            said = json.loads(row)
            if "failed" in said:
                raise TurnlogError(f"the recording process failed: {said['failed']}")
            if "durable" in said:
                self.acknowledged += said["durable"]
                narration.say("durable", _runs(said["durable"]))
            else:
                narration.say("agent", said["now"], "italic")
            if said.get("kill_me"):
                return
        raise TurnlogError("the recording process ended before it could be killed")

    def kill(self) -> int:
        """Send SIGKILL, take in what was already said, and return the exit status."""
        self.process.kill()
        assert self.process.stdout is not None
        with self.process.stdout as rest:
            for row in rest:
                with suppress(ValueError):  # the last row may be half of one
                    self.acknowledged += json.loads(row).get("durable", [])
        return self.process.wait()


class Demo:
    """One run of the story, part by part."""

    def __init__(self, url: str, office: Office, narration: Narration) -> None:
        self.url = url
        self.office = office
        self.tell = narration
        self.session_id = new_session_id()
        self.untouched = "nothing"
        """What a reader must not change, in the words of the store at hand."""
        self.acknowledged: list[dict[str, Any]] = []

    def run(self) -> None:
        """Tell the whole story; every part ends with its claims."""
        run(self._try_store())
        self.record_and_kill()
        run(self._go_on())

    async def _try_store(self) -> None:
        """Report a place that cannot be used here, and not from inside the child."""
        async with turnlog.open(self.url):
            pass

    async def _go_on(self) -> None:
        closers = await self.inspect()
        await self.repair(closers)
        await self.resume()
        await self.look_back()

    def record_and_kill(self) -> None:
        """Let a child process record a turn, and kill it inside the second tool's body."""
        self.tell.title("Record", "another process runs an agent turn and reports what is durable")
        child = Child(self.url, self.session_id, self.office.folder)
        try:
            child.watch(self.tell)
            self.tell.title("Kill", f"SIGKILL to process {child.process.pid}, inside the tool body")
        finally:
            status = child.kill()
        self.acknowledged = child.acknowledged
        self.tell.claim("the process is dead and could not close anything", status == -signal.SIGKILL)

    async def inspect(self) -> list[str]:
        """Look at what is left without touching it; returns the closers that a repair would add."""
        self.tell.title("Inspect", "this process reads what is left")
        async with turnlog.open(self.url) as store:
            before = await self._traces(store)
            found = await examine(store, self.session_id)
            stored = await self._stored(store)
            after = await self._traces(store)
        acknowledged = len(self.acknowledged)
        self.tell.say("status", found.status, STATUS_STYLES.get(found.status, ""))
        self.tell.say("events", f"{acknowledged} were acknowledged, {len(stored)} are stored")
        names = [closer_name(closer.to_dict()) for closer in found.closers]
        self.tell.say("to be added", ", ".join(name.removeprefix("tool/result ") for name in names))
        self.tell.claim(
            "every acknowledged event is there, unchanged",
            acknowledged > 0 and stored[:acknowledged] == self.acknowledged,
        )
        self.tell.claim(
            "the call that was running and the call that never started are told apart",
            names == CLOSERS,
        )
        self.tell.claim(f"inspecting changed {self.untouched}", before == after)
        return names

    async def repair(self, closers: list[str]) -> None:
        """Commit the recovery, twice: the second time finds nothing to do."""
        self.tell.title("Repair", "the interrupted turn is kept whole and closed")
        async with turnlog.open(self.url) as store:
            before = await self._stored(store)
            await store.load(self.session_id)
            repaired = await self._stored(store)
            files = await self._traces(store)
        self.tell.claim(
            f"the repair appended exactly those closers: {len(before)} events before, {len(repaired)} after",
            repaired[: len(before)] == before
            and [closer_name(event) for event in repaired[len(before) :]] == closers,
        )
        async with turnlog.open(self.url) as store:
            await store.load(self.session_id)
            again = await self._stored(store)
            unchanged = again == repaired and await self._traces(store) == files
            self.tell.claim(f"a second repair adds no event and changes {self.untouched}", unchanged)

    async def resume(self) -> None:
        """Go on in this process: what the model sees next, then another turn."""
        self.tell.title("Resume", "what the model sees next")
        async with turnlog.open(self.url) as store, store.resume(self.session_id) as session:
            messages = session.derive_messages()
            for message in messages:
                self.tell.quote(*_spoken(message))
            self.tell.claim("every tool call has exactly one result", _is_answered(messages))
            self.tell.title("Finish", "one more turn")
            known = len(messages)
            await second_turn(session, self.office)
            for message in session.derive_messages()[known:]:
                self.tell.quote(*_spoken(message))
        self.tell.claim("the invoice was paid once and the receipt sent once", self._is_settled())

    async def look_back(self) -> None:
        """Check the finished log as a stranger would find it."""
        self.tell.title("Look back", "the finished session")
        async with turnlog.open(self.url) as store:
            before = await self._traces(store)
            found = await examine(store, self.session_id)
            await store.load(self.session_id)
            stored = await self._stored(store)
            after = await self._traces(store)
        self.tell.say("events", f"{len(stored)}, in {found.turns} turns and {found.steps} steps")
        self.tell.claim(
            "its status is ok, and a repair has nothing to add", found.status == "ok" and before == after
        )
        self.tell.claim("turns, steps and tool calls are well-formed", not turnlog.check_invariants(stored))
        kept = stored[: len(self.acknowledged)] == self.acknowledged
        self.tell.claim("what was acknowledged before the kill is still there, unchanged", kept)

    async def _stored(self, store: turnlog.SessionStore) -> list[dict[str, Any]]:
        return [event.to_dict() async for event in store.iter_events(self.session_id)]

    async def _traces(self, store: turnlog.SessionStore) -> dict[str, str]:
        """Take a digest of every file of the session; of a database, which holds others too, its revision."""
        header = turnlog.SessionHeader(id=self.session_id, created_at=0, cwd=str(self.office.folder))
        artifact = store.locate(header)
        self.untouched = "no byte on disk"
        if artifact is None or Path(artifact).name not in ENCODING_OF_NAME:
            self.untouched = "nothing that is stored"
            return {"revision": (await status_of(store, self.session_id)).revision or ""}
        folder = Path(artifact).parent
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    def _is_settled(self) -> bool:
        return len(self.office.payments()) == 1 and len(self.office.receipts()) == 1


def _runs(events: Sequence[dict[str, Any]]) -> str:
    """Name events by seq and type, runs of one type once."""
    parts = []
    for kind, group in itertools.groupby(events, key=lambda event: event["type"]):
        number = len(list(group))
        parts.append(kind if number == 1 else f"{kind} ×{number}")
    first, last = events[0]["seq"], events[-1]["seq"]
    return f"seq {first}–{last}  " + ", ".join(parts) if first != last else f"seq {first}  " + parts[0]


def _spoken(message: dict[str, Any]) -> tuple[str, str]:
    """Tell who says a message, and what."""
    parts = records(message["content"])
    results = [part for part in parts if part["type"] == "tool-result"]
    if results:
        sign = "✗ " if results[0].get("isError") else ""
        return f"tool {results[0]['toolCallId']}", sign + block_text(results[0])
    said = " ".join(block_text(part) for part in parts if part["type"] == "text")
    calls = ", ".join(part["name"] for part in parts if part["type"] == "tool-call")
    return message["role"], f"{said} → {calls}" if calls else said


def _is_answered(messages: Sequence[dict[str, Any]]) -> bool:
    """Tell whether calls and results pair up one to one."""
    parts = [part for message in messages for part in records(message["content"])]
    calls = [part["id"] for part in parts if part["type"] == "tool-call"]
    results = [part["toolCallId"] for part in parts if part["type"] == "tool-result"]
    return bool(calls) and sorted(calls) == sorted(results) and len(set(calls)) == len(calls)


@click.command()
@click.option("--keep", is_flag=True, help="Keep the temporary store and say where it is.")
@click.option(
    "--compression",
    type=click.Choice(["none", "zstd"]),
    help="Encoding of the temporary store; zstd when not given.",
)
@shared_options()
@pass_settings
def demo(settings: Settings, keep: bool, compression: str | None) -> None:
    """Kill an agent inside a tool call, and finish its session.

    A turn is recorded, killed, inspected, repaired, resumed and finished: offline, with real processes and
    real files, in a temporary store or in the one given by --store. Ends non-zero if a claim is not so.
    """
    out = screen()
    own_store = click.get_current_context().meta.get(STORE_GIVEN) is True
    folder = Path(tempfile.mkdtemp(prefix="turnlog-demo-"))
    office = Office(folder)
    try:
        if own_store:
            if compression is not None:
                raise UsageError(
                    "--compression is for the temporary store; say it in the --store URL instead"
                )
            url = settings.url
        else:
            url = f"jsonl:{folder / 'store'}?compression={compression or 'zstd'}"
        if parse_store_url(url).scheme == "memory":
            raise UsageError("the demo kills a process, and a memory store dies with it; use jsonl:PATH")
        narration = Narration(out)
        out.write(Text("An agent that pays invoices is killed in the middle of a payment.", "bold"))
        narration.say("store", without_secrets(url))
        story = Demo(url, office, narration)
        story.run()
        narration.end()
        if keep or own_store:
            shown = without_secrets(url)
            out.write(Text(f"Look at it: turnlog --store '{shown}' show {story.session_id}", "dim"))
        else:
            out.write(Text("The temporary store is gone; with --keep it stays, to be looked at.", "dim"))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
