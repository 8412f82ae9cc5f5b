"""Kill a recording process inside a tool call and go on: `python examples/resume_after_a_kill.py`.

Started without arguments it starts itself as a child, kills that with SIGKILL, and resumes its session.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile

import turnlog

SESSION = "delivery-42"


async def record(url: str) -> None:
    """The child: begin a turn, and never come back from the tool."""
    async with turnlog.open(url) as store, store.create(id=SESSION) as session, session.turn() as turn:
        turn.user("Order two bags of flour.")
        async with turn.step() as step:
            call = {"type": "tool-call", "id": "c-1", "name": "order", "arguments": '{"bags":2}'}
            step.assistant([call], provider="none", model="list")
            async with step.tool("c-1", "order", call["arguments"]) as tool:
                print(f"ordering, key {tool.idempotency_key}", flush=True)
                await asyncio.sleep(3600)


async def resume(url: str) -> None:
    """The parent: read what is left without touching it, then go on with a balanced log."""
    async with turnlog.open(url) as store:
        found = await store.inspect(SESSION)
        print("a repair will append:", ", ".join(event.type for event in found.closers))
        async with store.resume(SESSION) as session:
            for message in session.derive_messages():
                print(f"{message['role']:>10}: {turnlog.dumps(message['content'])[:100]}")
            async with session.turn() as turn:
                turn.user("Check whether the order arrived before ordering again.")
            print("violated invariants:", turnlog.check_invariants(session.events))


def main() -> None:
    """Run the child, kill it inside the tool body, resume."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"jsonl:{folder}"
        with subprocess.Popen([sys.executable, __file__, url], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            print("child:", child.stdout.readline().rstrip())
            child.send_signal(signal.SIGKILL)
        asyncio.run(resume(url))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(record(sys.argv[1]))
    else:
        main()
