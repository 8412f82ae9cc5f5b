"""The service step by step: what each call of a recorded sequence answers, and which files are left."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from pathlib import Path
from typing import Any

from tests.corpus import jsvalues, paths, stores
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.errors import TurnlogError
from turnlog.events.header import SessionHeader
from turnlog.persistence.coordinator import PersistenceCoordinator

CASES: list[dict[str, Any]] = paths.read("invalid/persistence.json")["cases"]


def _is_bad_event(step: Case) -> bool:
    """Whether an appended event has an envelope or shape that the original stores and then cannot read."""
    if step["op"] != "append":
        return False
    return any(
        isinstance(event.get("time"), float) or (event["type"] == "user/message" and "surfaceOp" not in event)
        for event in step["args"][1]
    )


def _is_bad_header(step: Case) -> bool:
    if step["op"] != "create":
        return False
    header = step["args"][0]
    return header["version"] != 0 or not header.get("cwd", "/").startswith("/")


def _is_bad_id(step: Case) -> bool:
    """Whether the call names an id whose path segment is empty or longer than 240 bytes."""
    if step["op"] not in ("create", "locate"):
        return False
    name: str = step["args"][0]["id"]
    units = name.encode("utf-16-be", "surrogatepass")
    letters = [chr(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2)]
    length = sum(1 if letter.isascii() and (letter.isalnum() or letter in "._-") else 5 for letter in letters)
    return not 1 <= length <= 240


def _is_refused(step: Case) -> bool:
    return _is_bad_event(step) or _is_bad_header(step) or _is_bad_id(step)


def _follows_a_refusal(step: Case) -> bool:
    return not _is_refused(step) and any(map(_is_refused, step["before"]))


RULES = (
    Rule(
        "invalid-event",
        "L2",
        "an event with a bad envelope or without its surface marker, which the original stores for good",
        _is_bad_event,
        "accept",
        "reject",
        2,
    ),
    Rule(
        "invalid-header",
        "L2",
        "a header with a relative or empty working directory, or of another version",
        _is_bad_header,
        "accept",
        "reject",
        3,
    ),
    Rule(
        "invalid-id",
        "S1",
        "an id that has no path segment of 1 to 240 bytes",
        _is_bad_id,
        "accept",
        "reject",
        3,
    ),
    Rule(
        "nothing-there",
        "L2",
        "a call that builds on one that turnlog has refused",
        lambda step: step["op"] != "list" and _follows_a_refusal(step),
        "accept",
        "reject",
        4,
    ),
    Rule(
        "nothing-listed",
        "L2",
        "a listing that would show what turnlog has refused",
        lambda step: step["op"] == "list" and _follows_a_refusal(step),
        "accept",
        "accept, empty",
        2,
    ),
)


async def _call(store: PersistenceCoordinator, root: Path, step: dict[str, Any]) -> dict[str, Any]:
    """Make one call and return what it shows, in the words of the recorded step."""
    op, args = step["op"], [jsvalues.decode(arg) for arg in step["args"]]
    if op == "create":
        await store.create(SessionHeader.from_dict(args[0]))
    elif op == "append":
        await store.append(args[0], args[1])
    elif op == "list":
        entries = await stores.listed(store)
        return {"headers": [stores.plain_header(entry.meta) for entry in entries if entry.meta is not None]}
    elif op == "locate":
        path = store.locate(SessionHeader.from_dict(args[0]))
        return {"location": {"kind": "jsonl", "path": (path or "").replace(str(root), "<root>")}}
    else:
        name = {"readFrom": "read_from"}.get(op, op)
        found = await getattr(store, name)(*args)
        events = list(found.events)
        return {
            "events": len(events),
            "types": [event.type for event in events],
            "meta": stores.plain_header(found.meta),
        }
    return {}


async def _put(case: dict[str, Any], root: Path, ledger: Ledger) -> None:
    async with stores.opened(root, case["compression"]) as store:
        before: list[dict[str, Any]] = []
        for number, step in enumerate(case["steps"]):
            name = f"{case['name']}[{number}]"
            recorded = {**step, "name": name, "before": tuple(before)}
            before.append(step)
            try:
                shown = await _call(store, root, step)
            except TurnlogError:
                ours = "reject"
            else:
                ours = "accept"
                if step["expected"] == "accept" and shown != {key: step[key] for key in shown}:
                    assert shown == {"headers": []}, name
                    ours = "accept, empty"
            ledger.record(recorded, step["expected"], ours)
    refused = any(map(_is_refused, case["steps"]))
    files = sorted(str(path.relative_to(root)) for path in root.glob("*/*/session.jsonl*"))
    assert files == ([] if refused else case["files"]), case["name"]


@functools.cache
def run() -> Ledger:
    """Put every case to turnlog and return what differed."""
    ledger = Ledger("persistence", RULES)
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_put(case, Path(folder) / "root", ledger))
    return ledger


def test_every_case_has_the_original_outcome_or_a_rule() -> None:
    """L2, S1, B3, JL10, JL16, JL34–JL35, JL63, JL65, JL88, JL91: sequences of service calls."""
    ledger = run()
    ledger.check()
    assert len(CASES) == 35
    assert ledger.cases == sum(len(case["steps"]) for case in CASES)
