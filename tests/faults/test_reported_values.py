"""Reported faults of what a log holds: text, numbers, values that are no JSON, and what is not known.

The table of outcomes is in `test_reported_faults`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.cli.logs import Result
from tests.faults.stored import keep, log_file, note, notes, read, strict_lines
from tests.faults.stores import JsonlPlace, Place
from turnlog import SessionEvent
from turnlog.testing.scripts import LogScript
from turnlog.transcripts import SHAPES, Limits, document, export, page, validate
from turnlog.transcripts.conversation import Conversation

SMILE = "\U0001f600"


def with_arguments(text: str, *, result: str = "ok") -> list[SessionEvent]:
    """Return a turn whose tool call holds a text in its arguments, as a value and as a key."""
    script = LogScript().start().step().user(text).assistant(text, calls=["c"])
    answer = script.events[-1].to_dict()
    arguments = json.dumps({"x": text, text: 1}, ensure_ascii=False)
    answer["data"]["message"]["content"][1]["arguments"] = arguments
    script.events[-1] = SessionEvent.from_dict(answer)
    script.call("c").result("c", result)
    return script.add("feedback/record", {text: text, "deep": [{text: [text]}]}).end_step().end().events


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", ["ok \ud83d end", "\udc80abc", "\ud83d"])
async def test_enc_01_lone_surrogates(odd: str, place: Place) -> None:
    """Half an emoji comes back as it was, wherever it stands; what is stored and exported is valid UTF-8."""
    events = with_arguments(odd, result=odd)
    async with turnlog.open(place.url) as store:
        await keep(store, events)
    async with turnlog.open(place.url) as store:
        got = await read(store)
    assert got == events
    for event in got:
        event.line.decode("utf-8")
    for shape in SHAPES:
        exported = export(got, shape)
        assert validate(shape, exported.request) == []
        json.dumps(exported.request, ensure_ascii=False).encode("utf-8")
    conversation = Conversation.of(got)
    "".join(page(conversation, session_id="s")).encode("utf-8")
    "".join(document(conversation, session_id="s", facts=[])).encode("utf-8")


def test_enc_01_a_cut_text_has_whole_characters() -> None:
    """Wherever an export cuts a text, around its limit, no half of a character is left."""
    limit = 200
    for before in range(80, 220):
        text = "a" * before + SMILE + "b" * 200
        events = LogScript().start().step().user(text).events
        exported = export(events, "openai-chat", limits=Limits(max_text=limit))
        assert "text-cut" in {change.rule for change in exported.report}
        sent = json.dumps(exported.request, ensure_ascii=False)
        sent.encode("utf-8")
        assert "\ufffd" not in sent


async def test_enc_03_nul_characters(place: Place, tmp_path: Path) -> None:
    """The same text comes back from every store, and through copies from files and to files."""
    events = with_arguments("what\x00ever") + notes(2, first=len(with_arguments("x")))
    async with (
        turnlog.open(f"jsonl:{tmp_path / 'first'}?compression=none") as first,
        turnlog.open(place.url) as store,
        turnlog.open(f"jsonl:{tmp_path / 'last'}?compression=none") as last,
    ):
        await keep(first, events)
        assert not (await first.copy(store)).failed
        assert not (await store.copy(last)).failed
        await keep(store, events, "direct")
        for where, name in ((store, "s"), (last, "s"), (store, "direct")):
            assert await read(where, name) == events
    names = [tmp_path / name for name in ("first", "last")]
    assert len({next(name.rglob("session.jsonl")).read_bytes() for name in names}) == 1


async def test_enc_04_a_log_saved_by_an_editor(plain: JsonlPlace) -> None:
    """Line ends of Windows are read and appended behind; a byte-order mark is told, and nothing is lost."""
    async with turnlog.open(plain.url) as store:
        await keep(store, notes(3))
    path = log_file(plain)
    windows = path.read_bytes().replace(b"\n", b"\r\n")
    path.write_bytes(windows)
    async with turnlog.open(plain.url) as store:
        await store.append("s", [note(3)])
        assert [event.data for event in await read(store)] == [{"text": "x"}] * 4
    assert len(strict_lines(path)) == 5
    assert path.read_bytes().startswith(windows)
    path.write_bytes(b"\xef\xbb\xbf" + windows)
    async with turnlog.open(plain.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert damage.value.path == str(path)
        saved = await store.salvage("s", to=target)
        assert (saved.events, saved.header_lost) == (3, True)
        assert await read(target, saved.new_id) == notes(3)


# -- values ---------------------------------------------------------------------------------------


async def test_json_01_numbers_that_are_none(place: Place) -> None:
    """Each is refused with its path before anything is written, alike in every store."""
    async with turnlog.open(place.url) as store:
        await keep(store, notes(1))
        before = place.log("s")
        for name, value, path in (
            ("nan", [0.5, float("nan")], "loss[1]"),
            ("inf", [0.5, float("inf")], "loss[1]"),
            ("negative inf", [-float("inf")], "loss[0]"),
            ("negative zero", [-0.0], "loss[0]"),
            ("overflow", [1e400], "loss[0]"),
        ):
            with pytest.raises(turnlog.InvalidEventError) as refused:
                await store.append("s", [{**note(1), "data": {"loss": value}}])
            assert path in refused.value.field, name
            assert place.log("s") == before
        await store.append("s", [{**note(1), "data": {"big": 2**63}}])
        (_, big) = await read(store)
    assert big.data == {"big": 2**63}
    assert isinstance(big.data["big"], int)
    if isinstance(place, JsonlPlace):
        assert float(strict_lines(log_file(place))[-1]["data"]["big"]) == 2**63


async def test_json_01_a_bare_nan_in_a_log(plain: JsonlPlace) -> None:
    """A line that another program has written is reported, not a crash."""
    async with turnlog.open(plain.url) as store:
        await keep(store, notes(1))
    path = log_file(plain)
    with path.open("ab") as file:
        file.write(b'{"type":"feedback/record","seq":1,"time":1,"data":{"x":NaN}}\n')
        file.write(notes(1, first=2)[0].line + b"\n")
    async with turnlog.open(plain.url) as store, turnlog.open("memory:") as target:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert damage.value.line == 2
        assert (await store.salvage("s", to=target)).events == 2


async def test_json_03_values_that_are_no_json(place: Place) -> None:
    """The whole batch is refused before the first byte, with index, field and type; the next is stored."""
    loop: list[Any] = []
    loop.append(loop)
    async with turnlog.open(place.url) as store:
        await keep(store, notes(1))
        before = place.log("s")
        for value, named in (
            (object(), "type object"), ({1}, "type set"), (b"x", "type bytes"),
            (datetime(2026, 1, 1), "type datetime"), ({1: "x"}, "type int"), (loop, "nested deeper"),
        ):  # fmt: skip
            batch = [note(1), {**note(2), "data": {"bad": value}}, note(3)]
            with pytest.raises(turnlog.InvalidEventError, match=named) as refused:
                await store.append("s", batch)
            assert refused.value.index == 1
            assert "bad" in refused.value.field
            assert place.log("s") == before
        await store.append("s", [note(1)])
        assert len(await read(store)) == 2


# -- versions -------------------------------------------------------------------------------------


def _future() -> list[SessionEvent]:
    """Return a log with an event, a field and a block that nobody knows, and an open turn at its end."""
    script = LogScript().start().step()
    message = {
        "content": [{"type": "text", "text": "hi"}],
        "source": {"kind": "user"},
        "role": "user",
        "id": "u",
        "x_new_field": {"deep": [1, 2]},
    }
    script.add("user/message", message, surfaceOp="append")
    script.add("budget/changed", {"left": 3}, ignorable=True)
    script.assistant("hello")
    answer = script.events[-1].to_dict()
    answer["data"]["message"]["content"].insert(0, {"type": "hologram", "data": "??"})
    script.events[-1] = SessionEvent.from_dict(answer)
    return script.end_step().end().start().events


@asynccontextmanager
async def _repaired(place: Place, events: list[SessionEvent]) -> AsyncIterator[turnlog.SessionStore]:
    """Store a log, repair it, append to it and fork it."""
    async with turnlog.open(place.url) as store:
        await keep(store, events)
    async with turnlog.open(place.url) as store:
        closed = len((await store.load("s")).events)
        assert closed == len(events) + 1
        await store.append("s", [note(closed)])
        async with store.fork("s", at=len(events) - 2, child_id="fork"):
            pass
        yield store


async def test_version_02_what_is_not_known_survives(
    place: Place, tmp_path: Path, cli_on: Callable[..., Result]
) -> None:
    """Unknown events, fields and blocks pass every operation unchanged, and what is known stays visible."""
    events = _future()
    lines = [event.line for event in events]
    async with _repaired(place, events) as store, turnlog.open(f"jsonl:{tmp_path / 'copy'}") as other:
        assert not (await store.copy(other)).failed
        for where in (store, other):
            for name, until in (("s", len(lines)), ("fork", len(lines) - 1)):
                assert [event.line for event in await read(where, name)][:until] == lines[:until]
    for shape in SHAPES:
        exported = export(events, shape)
        sent = json.dumps(exported.request)
        assert "hello" in sent
        assert "??" not in sent
        assert [change.detail for change in exported.report if change.rule == "unknown-block"] == ["hologram"]
    html = "".join(page(Conversation.of(events), session_id="s"))
    assert "hello" in html
    assert "hologram" in html
    shown = cli_on(place.url, "show", "s")
    assert shown.code == 0
    assert "hello" in shown.out
