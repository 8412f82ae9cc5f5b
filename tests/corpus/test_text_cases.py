"""Raw files laid out below a root, then inspected, loaded or listed: case by case, with the differences."""

from __future__ import annotations

import asyncio
import base64
import functools
import tempfile
from pathlib import Path
from typing import Any

from tests.corpus import evidence, jsvalues, paths, stores
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.errors import TurnlogError
from turnlog.events.ecmascript import canonical

CASES: list[dict[str, Any]] = paths.read("invalid/text.json")["cases"]


def _log(case: Case) -> bytes:
    """Return the bytes of the session that the case is about."""
    for name, content in case["files"].items():
        if name.endswith(f"/{case.get('id', 't')}/session.jsonl"):
            data = content["text"].encode() if "text" in content else base64.b64decode(content["b64"])
            return bytes(data)
    return b""


def _header(case: Case) -> bytes:
    return _log(case).partition(b"\n")[0]


def _body(case: Case) -> bytes:
    return _log(case).partition(b"\n")[2]


def _is_read(case: Case) -> bool:
    return bool(case["op"] != "list")


def _is_lossy(case: Case) -> bool:
    return _is_read(case) and (evidence.is_lossy(_header(case)) or evidence.lossy_lines(_body(case)))


def _has_later_event(case: Case) -> bool:
    return _is_read(case) and not _is_lossy(case) and evidence.later_event(_body(case))


def _is_repeated(case: Case) -> bool:
    return _is_read(case) and evidence.repeats_last_row(_body(case))


def _holds_null(case: Case) -> bool:
    return _is_read(case) and b"null" in _body(case).split(b"\n")


def _is_other_encoding(case: Case) -> bool:
    name = "session.jsonl" if case["compression"] == "zstd" else "session.jsonl.zstd"
    return _is_read(case) and all(path.endswith("/" + name) for path in case["files"])


def _is_other_version(case: Case) -> bool:
    return case["op"] == "list" and b'"version":' in _header(case) and b'"version":0' not in _header(case)


RULES = (
    Rule(
        "later-event",
        "R2",
        "a valid event with a seq that is due or later stands at or behind the first bad byte",
        _has_later_event,
        "accept",
        "reject",
        6,
    ),
    Rule(
        "repeated-row",
        "R2",
        "the first bad line repeats the one before it and nothing follows",
        _is_repeated,
        "reject",
        "accept",
        1,
    ),
    Rule(
        "null-line", "R2", "a line holds null, which crashes the original", _holds_null, "reject", "accept", 1
    ),
    Rule(
        "lossy-text",
        "L2",
        "a line is JSON but not lossless: negative zero, overflow, invalid UTF-8",
        _is_lossy,
        "accept",
        "reject",
        4,
    ),
    Rule(
        "both-encodings",
        "3.5",
        "the session is stored in the encoding that the store does not write",
        _is_other_encoding,
        "reject",
        "accept",
        1,
    ),
    Rule(
        "listing-goes-on",
        "B4",
        "an entry that the original's listing fails on",
        lambda case: case["op"] == "list" and not _is_other_version(case),
        "reject",
        "accept",
        4,
    ),
    Rule(
        "other-version",
        "B4",
        "a header of another version, which the original lists like its own",
        _is_other_version,
        "accept",
        "accept, unsupported",
        1,
    ),
)


async def _put(case: dict[str, Any], root: Path) -> str:
    stores.lay_out(root, case["files"])
    try:
        async with stores.opened(root, case["compression"]) as store:
            if case["op"] == "list":
                return await _list(store, case)
            found = await getattr(store, case["op"])(case["id"])
            if case["op"] == "load" and case["expected"] == "accept":
                for name, text in case["after"].items():
                    assert (root / name).read_bytes() == text.encode(), case["name"]
    except TurnlogError:
        for name, content in case["files"].items():
            stored = content["text"].encode() if "text" in content else base64.b64decode(content["b64"])
            assert (root / name).read_bytes() == stored, f"{case['name']}: a refusal has written"
        return "reject"
    if case["expected"] == "accept":
        events = [event.to_dict() for event in found.events]
        assert canonical(events) == canonical(jsvalues.decode(case["events"])), case["name"]
        assert stores.plain_header(found.meta) == case["header"], case["name"]
        if case["op"] == "inspect":
            assert len(found.events) - len(found.closers) == case["stored_events"], case["name"]
            assert (found.torn.size if found.torn else None) == case.get("torn_bytes"), case["name"]
    return "accept"


async def _list(store: Any, case: dict[str, Any]) -> str:
    entries = await stores.listed(store)
    if case["expected"] == "reject":
        assert any(entry.problem for entry in entries), case["name"]
        return "accept"
    good = [stores.plain_header(entry.meta) for entry in entries if entry.meta is not None]
    if good == case["headers"]:
        return "accept"
    assert [entry.status for entry in entries] == ["unsupported"], case["name"]
    return "accept, unsupported"


@functools.cache
def run() -> Ledger:
    """Put every case to turnlog and return what differed."""
    ledger = Ledger("text", RULES)
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            ledger.record(case, case["expected"], asyncio.run(_put(case, Path(folder))))
    return ledger


def test_every_case_has_the_original_outcome_or_a_rule() -> None:
    """R2, L2, B4, JL6–JL9, JL25–JL26, JL39, JL43–JL49, JL60–JL61, JL69–JL77, JL86: raw files."""
    ledger = run()
    ledger.check()
    assert ledger.cases == len(CASES) == 145
