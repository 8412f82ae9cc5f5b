"""Logs that are cut, damaged or have a bit flipped: 6,329 of them, each inspected, listed and loaded."""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.corpus import evidence, paths, stores
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.backends.jsonl.files import FileLayer
from turnlog.errors import CorruptLogError, UnsupportedFormatError
from turnlog.events import frames
from turnlog.persistence.coordinator import PersistenceCoordinator

FILES = (
    "every-offset.plain",
    "every-offset.zstd",
    "multiblock.zstd",
    "bit-flips.plain",
    "bit-flips.zstd",
    "damage.plain",
    "damage.zstd",
    "sampled.plain",
    "sampled.zstd",
)


@dataclass(frozen=True, slots=True)
class Torn:
    """One recorded log."""

    name: str
    relpath: str
    session_id: str
    data: bytes
    result: dict[str, Any]

    @property
    def case(self) -> Case:
        """The case as the rules see it: bytes, and what they are."""
        return {"name": self.name, "data": self.data, "zstd": self.relpath.endswith("zstd"), **self.result}


def _cuts(name: str, base: str) -> Iterator[Torn]:
    recorded = paths.read(f"torn/{name}.json")
    data = (paths.DATA / "torn" / base).read_bytes()
    for size, result in recorded["results"].items():
        yield Torn(f"{name}@{size}", recorded["relpath"], recorded["id"], data[: int(size)], result)


def _flips(name: str) -> Iterator[Torn]:
    recorded = paths.read(f"torn/{name}.json")
    data = (paths.DATA / "torn" / recorded["base"]).read_bytes()
    for offset, result in recorded["results"].items():
        flipped = bytearray(data)
        flipped[int(offset)] ^= 1 << result["bit"]
        relpath = f"--g--/{recorded['id']}/session{recorded['base'].removeprefix('base')}"
        yield Torn(f"{name}@{offset}", relpath, recorded["id"], bytes(flipped), result)


def _samples(name: str) -> Iterator[Torn]:
    encoding = name.partition(".")[2]
    suffix = "jsonl.zstd" if encoding == "zstd" else "jsonl"
    for log, results in paths.read(f"torn/{name}.json")["results"].items():
        data = (paths.DATA / "jsonl" / encoding / f"{log}.{suffix}").read_bytes()
        whole = paths.read(f"jsonl/{encoding}/{log}.expected.json")
        for size, result in results.items():
            yield Torn(f"{log}@{size}", whole["relpath"], whole["id"], data[: int(size)], result)


def cases(name: str) -> Iterator[Torn]:
    """Yield the logs of one file of cases."""
    if name.startswith("bit-flips"):
        yield from _flips(name)
    elif name.startswith("sampled"):
        yield from _samples(name)
    elif name.startswith("damage"):
        recorded = paths.read(f"torn/{name}.json")
        for case in recorded["cases"]:
            data = base64.b64decode(case["b64"])
            yield Torn(case["name"], recorded["relpath"], recorded["id"], data, case)
    else:
        base = "multiblock" if name.startswith("multiblock") else "base"
        yield from _cuts(name, f"{base}.jsonl" + (".zstd" if name.endswith("zstd") else ""))


# The conditions of the rules: over the bytes alone


def _body(case: Case) -> bytes:
    data: bytes = case["data"]
    return data[data.find(b"\n") + 1 :]


def _is_lossy(case: Case) -> bool:
    return not case["zstd"] and evidence.lossy_lines(_body(case))


def _has_later_event(case: Case) -> bool:
    return not case["zstd"] and not _is_lossy(case) and evidence.later_event(_body(case))


def _has_later_frame(case: Case) -> bool:
    return bool(case["zstd"]) and evidence.later_frame(case["data"])


def _is_repeated(case: Case) -> bool:
    return bool(case["zstd"]) and evidence.repeats_last_frame(case["data"])


def _ends_in_garbage(case: Case) -> bool:
    if not case["zstd"] or _has_later_frame(case) or _is_repeated(case):
        return False
    texts, end = evidence.frames_of(case["data"])
    return len(texts) > 1 and end < len(case["data"])


def _lacks_a_number(case: Case) -> bool:
    """Whether some event has no turn, step or call id where the closers take it from."""
    if case["zstd"]:
        return False
    for line in _body(case).split(b"\n"):
        if line.startswith(b'{"type":"turn/start"') and b'"data":{"turn":' not in line:
            return True
        if (
            line.startswith((b'{"type":"step/start"', b'{"type":"assistant/message"'))
            and b'"step":' not in line
        ):
            return True
    return False


def _lacks_a_call_id(case: Case) -> bool:
    return not case["zstd"] and case["data"].count(b'{"type":"tool-call","id":') < 2 <= case["data"].count(
        b'{"type":"tool-call","'
    )


RULES = (
    Rule(
        "later-event",
        "R2",
        "a valid event with a seq that is due or later stands behind the first bad byte",
        _has_later_event,
        "accept",
        "reject",
        430,
    ),
    Rule(
        "later-frame",
        "R2",
        "a complete frame stands behind the first bad byte",
        _has_later_frame,
        "accept",
        "reject",
        5,
    ),
    Rule(
        "lossy-text",
        "L2",
        "the bad line is JSON but not lossless, for example with invalid UTF-8",
        _is_lossy,
        "accept",
        "reject",
        41,
    ),
    Rule(
        "stray-bytes",
        "R2",
        "bytes that can be no frame end the file, with nothing behind them",
        _ends_in_garbage,
        "reject",
        "accept",
        1,
    ),
    Rule(
        "repeated-frame",
        "R2",
        "the last frame repeats the one before it",
        _is_repeated,
        "reject",
        "accept",
        1,
    ),
    Rule(
        "closers-of-nothing",
        "R1",
        "an event of the open turn lacks its turn or step, which the closers then state as null",
        _lacks_a_number,
        "accept",
        "accept, other closers",
        9,
    ),
    Rule(
        "call-without-id",
        "R1",
        "a call of the open step has no id: the original makes a closer that it refuses itself",
        _lacks_a_call_id,
        "reject",
        "accept",
        2,
    ),
    Rule(
        "listing-goes-on",
        "B4",
        "a header that the original's listing fails on",
        lambda case: isinstance(case["listed"], str),
        "list: error",
        "list: a problem",
        89,
    ),
)


class _NoSync(FileLayer):
    """Leaves out the syncs: no case is about power loss."""

    def sync(self, fd: int) -> None:
        """Do nothing."""

    def sync_data(self, fd: int) -> None:
        """Do nothing."""


def _detail(result: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Return where two outcomes differ that are both `accept`."""
    return {
        key: (result[key], value) for key, value in shown.items() if key in result and result[key] != value
    }


async def _inspect(store: PersistenceCoordinator, torn: Torn) -> str:
    try:
        found = await store.inspect(torn.session_id)
    except (CorruptLogError, UnsupportedFormatError):
        return "reject"
    if torn.result["status"] == "error":
        return "accept"
    differs = _detail(
        torn.result,
        {
            "n_events": len(found.events) - len(found.closers),
            "n_inspect": len(found.events),
            "closers": [event.type for event in found.closers],
            "torn_bytes": found.torn.size if found.torn else 0,
            "recovered_events": found.torn.recovered_events if found.torn else 0,
            "events_sha8": stores.digest(found.events),
        },
    )
    if set(differs) == {"events_sha8"}:
        return "accept, other closers"
    assert not differs, (torn.name, differs)
    return "accept"


async def _list(store: PersistenceCoordinator, torn: Torn) -> str:
    (entry,) = await stores.listed(store)
    if isinstance(torn.result["listed"], str):
        assert entry.problem, torn.name
        return "list: a problem"
    assert (entry.meta is not None) == torn.result["listed"], (torn.name, entry)
    return f"list: {torn.result['listed']}"


async def _load(store: PersistenceCoordinator, torn: Torn, log: Path) -> None:
    """Check what a load leaves; only for cases that both read, or both refuse."""
    if torn.result["load"] == "error":
        with pytest.raises((CorruptLogError, UnsupportedFormatError)):
            await store.load(torn.session_id)
        assert log.read_bytes() == torn.data, torn.name
        return
    await store.load(torn.session_id)
    stored = log.read_bytes()
    spans = frames.scan(stored).spans if log.name.endswith("zstd") else []
    text = b"".join(frames.decompress(stored[a:b]) for a, b in spans) if spans else stored
    assert not _detail(
        torn.result,
        {
            "repaired_text_bytes": len(text),
            "repaired_text_sha8": hashlib.sha256(text).hexdigest()[:8],
            "repaired_frames": len(spans),
        },
    ), torn.name


async def _put(name: str, root: Path, ledger: Ledger) -> None:
    """Put all logs of one file of cases to one store, one after another in the same place."""
    async with stores.opened(root, files=_NoSync()) as store:
        for torn in cases(name):
            log = root / torn.relpath
            for folder in root.glob("*/*"):
                shutil.rmtree(folder)
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_bytes(torn.data)
            theirs = "accept" if torn.result["status"] == "ok" else "reject"
            rule = ledger.record(torn.case, theirs, await _inspect(store, torn))
            listing = torn.result["listed"]
            listed = "list: error" if isinstance(listing, str) else f"list: {listing}"
            ledger.record(torn.case, listed, await _list(store, torn))
            assert log.read_bytes() == torn.data, f"{torn.name}: reading has written"
            if rule is None and "load" in torn.result:
                await _load(store, torn, log)


@functools.cache
def run() -> Ledger:
    """Put every case to turnlog and return what differed."""
    ledger = Ledger("torn", RULES)
    for name in FILES:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_put(name, Path(folder) / "root", ledger))
    return ledger


def test_every_case_has_the_original_outcome_or_a_rule() -> None:
    """R1, R2, R3, L1, B4, JL28, JL38, JL40, JL50–JL55, JL87, Z18–Z21: every cut, flip and damage."""
    ledger = run()
    ledger.check()
    assert ledger.cases == 2 * 6329
