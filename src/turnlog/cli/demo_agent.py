"""The agent of `turnlog demo`: a scripted model with real tools, run in a process that gets killed.

Owns the story (a payment that must not be made twice) and the child's side of the demo. The child writes
one JSON line to standard output for everything that has become durable; the parent is in `demo`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import turnlog
from turnlog.cli.remarks import remarks

CONFIG = {"provider": "scripted", "model": "bookkeeper"}
SYSTEM = "You keep the books. Never pay an invoice twice."
PROMPT = "Pay invoice 17 and send the receipt."
FOLLOW_UP = "Please go on."

TOOLS: list[dict[str, Any]] = [
    {"name": name, "description": description, "parameters": {"type": "object"}}
    for name, description in (
        ("read_invoice", "Read one invoice."),
        ("pay_invoice", "Pay one invoice. Not idempotent: every call moves money."),
        ("read_ledger", "List the payments that were made."),
        ("send_receipt", "Mail the receipt of one payment."),
    )
]
_INVOICE = '{"invoice":17}'

Tell = Callable[[dict[str, Any]], None]


class Office:
    """The world outside the log: a ledger and an outbox, as files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ledger = folder / "ledger.txt"
        self._outbox = folder / "outbox.txt"

    def payments(self) -> list[str]:
        """Return the payments that were really made."""
        return _rows(self._ledger)

    def receipts(self) -> list[str]:
        """Return the receipts that were really sent."""
        return _rows(self._outbox)

    def pay(self) -> str:
        """Move the money."""
        return _append(self._ledger, "invoice 17: 120.00 EUR paid to Acme")

    def send(self) -> str:
        """Mail the receipt."""
        return _append(self._outbox, "receipt for invoice 17 sent to Acme")


def _rows(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _append(path: Path, row: str) -> str:
    with path.open("a") as file:
        file.write(row + "\n")
    return row


def answer(reasoning: str, said: str, calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Make the content blocks of one answer: a thought, a text, and calls as `(id, tool name)`."""
    blocks: list[dict[str, Any]] = [{"type": "reasoning", "text": reasoning}] if reasoning else []
    blocks.append({"type": "text", "text": said})
    blocks += [{"type": "tool-call", "id": call, "name": name, "arguments": _INVOICE} for call, name in calls]
    return blocks


async def stream(step: Any, blocks: Sequence[dict[str, Any]], pace: float) -> None:
    """Stream an answer in small chunks as a provider does, then log the finished message.

    Args:
        step: The step recorder.
        blocks: The finished content.
        pace: Seconds between two chunks.
    """
    output = 0
    for index, block in enumerate(blocks):
        step.chunk({"type": "block-start", "index": index, "blockType": block["type"]})
        for delta in _deltas(index, block):
            step.chunk(delta)
            output += 1
            await asyncio.sleep(pace)
        step.chunk({"type": "block-end", "index": index, "block": block})
    has_calls = any(block["type"] == "tool-call" for block in blocks)
    usage = {"inputTokens": 310, "outputTokens": output}
    step.chunk({"type": "usage", "usage": usage})
    step.chunk({"type": "finish", "reason": {"kind": "tool-calls" if has_calls else "stop"}})
    step.assistant(list(blocks), **CONFIG, usage=usage)


def _deltas(index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["type"] == "tool-call":
        return [
            {
                "type": "tool-call-delta",
                "index": index,
                "id": block["id"],
                "name": block["name"],
                "argumentsDelta": block["arguments"],
            }
        ]
    words = block["text"].split(" ")
    kind = "reasoning-delta" if block["type"] == "reasoning" else "text-delta"
    return [
        {"type": kind, "index": index, "text": word if n == 0 else " " + word} for n, word in enumerate(words)
    ]


async def first_turn(session: Any, office: Office, tell: Tell) -> None:
    """Run the turn that never ends: it waits inside `pay_invoice` after the money has gone out."""
    async with session.turn() as turn:
        turn.user(PROMPT)
        async with turn.step() as step:
            await step.request(config=CONFIG, system=SYSTEM, tools=TOOLS)
            tell({"now": "the request goes to the model"})
            calls = [("c-1", "read_invoice"), ("c-2", "pay_invoice"), ("c-3", "send_receipt")]
            await stream(
                step, answer("Read it, pay it, send the receipt.", "I pay invoice 17 now.", calls), 0.02
            )
            async with step.tool("c-1", "read_invoice", _INVOICE) as tool:
                tell({"now": "read_invoice runs"})
                tool.result("invoice 17: 120.00 EUR to Acme, unpaid")
            async with step.tool("c-2", "pay_invoice", _INVOICE):
                tell({"now": "pay_invoice runs"})
                office.pay()
                tell({"now": "the money has gone out", "kill_me": True})
                await asyncio.sleep(60)


async def second_turn(session: Any, office: Office) -> None:
    """Finish the work after the resume: look before paying, then send the receipt that was never started."""
    async with session.turn() as turn:
        turn.user(FOLLOW_UP)
        async with turn.step() as step:
            await step.request(config=CONFIG, system=SYSTEM, tools=TOOLS)
            said = "Whether the payment went through is unknown, so I look first."
            await stream(step, answer("", said, [("c-4", "read_ledger")]), 0)
            async with step.tool("c-4", "read_ledger", _INVOICE) as tool:
                tool.result("\n".join(office.payments()) or "no payments")
        async with turn.step() as step:
            await step.request(config=CONFIG, system=SYSTEM, tools=TOOLS)
            calls = [("c-5", "send_receipt")]
            if not office.payments():
                calls.insert(0, ("c-6", "pay_invoice"))
            await stream(step, answer("", "It was paid, once. I only send the receipt.", calls), 0)
            for call, name in calls:
                async with step.tool(call, name, _INVOICE) as tool:
                    tool.result(office.send() if name == "send_receipt" else office.pay())
        async with turn.step() as step:
            await step.request(config=CONFIG, system=SYSTEM, tools=TOOLS)
            await stream(step, answer("", "Invoice 17 is paid and the receipt is sent.", []), 0)


async def record(url: str, session_id: str, folder: Path) -> None:
    """Be the process that gets killed: run the first turn and report every event that became durable."""
    reported = 0

    def tell(what: dict[str, Any]) -> None:
        nonlocal reported
        durable = session.durable_seq
        if durable > reported:
            events = [event.to_dict() for event in session.events[reported:durable]]
            print(turnlog.dumps({"durable": events}), flush=True)
            reported = durable
        if what:
            print(json.dumps(what), flush=True)

    async def watch() -> None:
        while True:
            tell({})
            await asyncio.sleep(0.01)

    async with turnlog.open(url) as store, store.create(id=session_id, cwd=folder) as session:
        watching = asyncio.create_task(watch())
        try:
            await first_turn(session, Office(folder), tell)
        finally:
            watching.cancel()


if __name__ == "__main__":
    with remarks(as_json=False, quiet=True):  # the parent tells what failed
        try:
            asyncio.run(record(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
        except turnlog.TurnlogError as error:
            print(json.dumps({"failed": str(error)}), flush=True)
            sys.exit(1)
