"""Record one turn of an agent with your own loop: `python examples/record_a_turn.py [STORE_URL]`.

The answer comes from a list here; in an agent it comes from a provider, chunk by chunk. Everything is on disk
before the tool runs, so a kill at any point leaves a session that can be resumed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

import turnlog

CALL = {"type": "tool-call", "id": "c-1", "name": "word_count", "arguments": '{"text":"to be or not to be"}'}
ANSWERS = [
    [{"type": "text", "text": "Let me count."}, CALL],
    [{"type": "text", "text": "Six words, four different ones."}],
]


def word_count(text: str) -> str:
    """The tool."""
    words = text.split()
    return f"{len(words)} words, {len(set(words))} different"


async def main(url: str) -> None:
    """Record a turn of two steps and print the conversation that a model would see next."""
    async with turnlog.open(url) as store, store.create(cwd="/srv/app") as session:
        async with session.turn() as turn:
            turn.user("How many words are in 'to be or not to be'?")
            for blocks in ANSWERS:
                async with turn.step() as step:
                    await step.request(
                        config={"provider": "none", "model": "list"}, system="Count words.", tools=[]
                    )
                    for index, block in enumerate(blocks):
                        if block["type"] == "text":
                            for piece in (block["text"][:8], block["text"][8:]):
                                step.chunk({"type": "text-delta", "index": index, "text": piece})
                    step.assistant(blocks, provider="none", model="list")
                    for call in (block for block in blocks if block["type"] == "tool-call"):
                        async with step.tool(call["id"], call["name"], call["arguments"]) as tool:
                            tool.result(word_count("to be or not to be"))
        # Leaving the turn has flushed it: everything below `durable_seq` survives a power cut.
        print(f"session {session.id}: {session.durable_seq} events are durable")
        for message in session.derive_messages():
            print(f"{message['role']:>10}: {turnlog.dumps(message['content'])}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else f"jsonl:{folder}"))
