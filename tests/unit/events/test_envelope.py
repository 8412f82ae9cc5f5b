"""The event object: built once, lazy, immutable, equal by JSON value."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.unit.events.samples import SAFE, delta, events, values
from turnlog.errors import InvalidEventError
from turnlog.events import lossless, vocabulary
from turnlog.events.deltas import Delta
from turnlog.events.envelope import EventRow, SessionEvent, as_event, parse_event_row
from turnlog.events.live_run import pack_rows
from turnlog.events.lossless import LosslessDecodeError


def test_a_built_event_has_the_live_key_order() -> None:
    """Provenance stands before the surface operation, the ignorable mark last."""
    event = SessionEvent.build(
        "user/message", 4, 7, {"x": 1}, source_event_seqs=(1, 2), surface_op="append", ignorable=True
    )
    assert event.line == (
        b'{"type":"user/message","seq":4,"time":7,"data":{"x":1},"sourceEventSeqs":[1,2],'
        b'"surfaceOp":"append","ignorable":true}'
    )
    assert event.source_event_seqs == (1, 2)
    assert event.surface_op == "append"
    assert event.ignorable
    assert event.delta is None


def test_optional_keys_are_absent_unless_given() -> None:
    """None leaves a key out; an empty list is a statement."""
    event = SessionEvent.build("turn/start", 0, 0, None)
    assert event.line == b'{"type":"turn/start","seq":0,"time":0,"data":null}'
    assert (event.source_event_seqs, event.surface_op, event.ignorable) == (None, None, False)
    empty = SessionEvent.build(
        "assistant/message", 0, 0, {}, source_event_seqs=[], surface_op={"op": "replace"}
    )
    assert empty.source_event_seqs == ()
    assert empty.surface_op == {"op": "replace"}


def test_building_refuses_what_cannot_be_stored() -> None:
    """The path begins at the data, and both numbers are checked (L2)."""
    with pytest.raises(InvalidEventError) as caught:
        SessionEvent.build("a/b", 0, 0, {"x": [set()]})
    assert (caught.value.field, caught.value.type) == ("data.x[0]", "a/b")
    for seq, time, field in ((-1, 0, "seq"), (0, SAFE + 1, "time")):
        with pytest.raises(InvalidEventError) as caught:
            SessionEvent.build("a/b", seq, time, {})
        assert caught.value.field == field
    with pytest.raises(InvalidEventError):
        SessionEvent.build("a/b", 0, 0, {}, source_event_seqs={1})
    with pytest.raises(InvalidEventError):
        SessionEvent.build("a/b", 0, 0, {}, surface_op=b"x")


@given(values)
def test_an_event_keeps_its_payload_and_shares_nothing(value: Any) -> None:
    """Data comes back as it was, a fresh object each time."""
    event = SessionEvent.build("todo/write", 3, -5, {"v": value})
    first, second = event.data, event.data
    assert lossless.encode(first) == lossless.encode({"v": value})
    assert first is not second
    assert SessionEvent.from_line(event.line) == event
    assert SessionEvent.from_dict(event.to_dict()).line == event.line
    assert pickle.loads(pickle.dumps(event)) == event
    assert copy.deepcopy(event) == event


def test_readers_cannot_change_an_event() -> None:
    """Attributes are frozen, and what was handed out is a copy."""
    source = {"todos": [{"content": "a"}]}
    event = SessionEvent.build("todo/write", 0, 0, source)
    source["todos"].append({"content": "b"})
    event.data["todos"].clear()
    event.to_dict()["data"]["todos"].clear()
    assert event.data == {"todos": [{"content": "a"}]}
    with pytest.raises(AttributeError):
        event.seq = 5  # type: ignore[misc]  # the refusal is the point


def test_key_order_is_kept_and_does_not_count() -> None:
    """Two events with the same JSON value are equal, also across representations."""
    one = SessionEvent.from_dict({"seq": 0, "data": {"b": 1, "a": 2.0}, "type": "x/y", "time": 1.0})
    two = SessionEvent.from_dict({"type": "x/y", "seq": 0.0, "time": 1, "data": {"a": 2, "b": 1}})
    assert list(one.to_dict()) == ["seq", "data", "type", "time"]
    assert one == two
    assert (one != two) is False
    assert hash(one) == hash(two)
    assert one.canonical() == two.canonical()
    assert one != SessionEvent.from_dict({"type": "x/y", "seq": 0, "time": 1, "data": {"a": 2, "b": 3}})
    assert one != SessionEvent.from_dict({"type": "x/y", "seq": 1, "time": 1, "data": {"a": 2, "b": 1}})
    assert one != one.to_dict()
    assert "seq=0" in repr(one)


def test_the_type_of_a_number_does_not_count_but_its_value_does() -> None:
    """`true` is not `1`, and `1.0` is."""
    one, true = ({"type": "a/b", "seq": 0, "time": 0, "data": x} for x in (1, True))
    assert SessionEvent.from_dict(one) != SessionEvent.from_dict(true)


def test_a_packed_event_equals_its_plain_form() -> None:
    """An event out of a run and the same event as a line are one value."""
    dicts = [
        delta(0, "a\ud800"),
        delta(1, "{", kind="tool-call-delta"),
        delta(2, "}", kind="tool-call-delta", name="read"),
        delta(3, kind="reasoning-delta", turn=1.5),
    ]
    for given_dict, event in zip(dicts, events(dicts), strict=True):
        chunk = given_dict["data"]["chunk"]
        text = chunk.get("text", chunk.get("argumentsDelta"))
        data = given_dict["data"]
        made = Delta(chunk["type"], data["turn"], data["step"], 0, text, chunk.get("id"), chunk.get("name"))
        packed = SessionEvent("assistant/chunk", event.seq, event.time, None, made)
        assert packed == event
        assert hash(packed) == hash(event)
        assert packed.line == event.line
        assert packed.to_dict() == given_dict
        assert packed.data == given_dict["data"]
        assert (packed.source_event_seqs, packed.surface_op, packed.ignorable) == (None, None, False)
        assert pickle.loads(pickle.dumps(packed)) == packed
        assert packed == SessionEvent("assistant/chunk", event.seq, event.time, None, made)
        assert packed != SessionEvent("assistant/chunk", event.seq + 1, event.time, None, made)
        assert packed != SessionEvent("assistant/chunk", event.seq, event.time + 1, None, made)


def test_from_dict_names_the_bad_part_and_the_index() -> None:
    """Losslessness is checked before the envelope."""
    with pytest.raises(InvalidEventError) as caught:
        SessionEvent.from_dict({"type": "a/b", "seq": "x", "time": 0, "data": [b""]}, 6)
    assert (caught.value.field, caught.value.index, caught.value.type) == ("$.data[0]", 6, "a/b")
    with pytest.raises(InvalidEventError) as caught:
        SessionEvent.from_dict({"type": 4, "seq": 0, "time": 0, "data": {1: 2}})
    assert caught.value.type is None


def test_as_event_takes_events_and_mappings() -> None:
    """Functions over events accept either, and refuse anything else with the index."""
    event = SessionEvent.build("a/b", 0, 0, 1)
    assert as_event(event) is event

    class Wrapped(dict[str, Any]):
        """A mapping that is no plain dict."""

    assert as_event(Wrapped(event.to_dict())) == event
    with pytest.raises(InvalidEventError) as caught:
        as_event(3, 9)  # type: ignore[arg-type]  # the wrong type is the point
    assert caught.value.index == 9


LINES = [
    b'{"type":"a/b","seq":1.0,"time":1e3,"data":1}',
    b'{"type":"a/b","seq":1,"time":1000,"data":"\\ud800"}',
    b' {"seq": 1, "time": 1000, "data": null, "type": "a/b", "ignorable": true}\r',
    b'{"type":"a/b","seq":1,"time":1000,"data":12345678901234567890}',
    b'{"type":"x","type":"a/b","seq":1,"time":1000,"data":0}',
]


@pytest.mark.parametrize("line", LINES)
def test_stored_lines_are_kept_byte_for_byte(line: bytes) -> None:
    """Whatever valid form a writer chose, it is read and not rewritten (L1)."""
    row = parse_event_row(line)
    assert (row.type, row.first_seq, row.last_seq, row.count, row.time) == ("a/b", 1, 1, 1, 1000)
    assert row.line == line
    assert row.nbytes == len(line)
    event = row.event()
    assert event.line == line
    assert list(row.events()) == [event]
    assert SessionEvent.from_line(line) == event


BAD_LINES = [
    b'{"type":"a/b","seq":-1,"time":1,"data":1}',
    b'{"type":"a/b","seq":9007199254740992,"time":1,"data":1}',
    b'{"type":"a/b","seq":1,"time":9007199254740992,"data":1}',
    b'{"type":"a/b","seq":1,"time":1,"data":1,"ignorable":false}',
    b'{"type":"a/b","seq":1,"time":1,"data":1,"surfaceOp":null}',
    b'{"type":"a/b","seq":1,"time":1,"data":1,"sourceEventSeqs":null}',
    b'{"type":"a/b","seq":1,"time":1}',
    b'{"type":"a/b","seq":1,"time":1,"data":1,"more":1}',
    b'{"type":"a/b","seq":true,"time":1,"data":1}',
    b"[]",
    b"null",
]


@pytest.mark.parametrize("line", BAD_LINES)
def test_lines_that_are_no_events_are_refused(line: bytes) -> None:
    """The typed decode never accepts what the envelope check refuses."""
    with pytest.raises(InvalidEventError):
        parse_event_row(line)
    with pytest.raises(InvalidEventError):
        SessionEvent.from_line(line)


def test_lines_that_are_no_lossless_json_are_refused() -> None:
    """Also inside the payload, which the typed decode skips (L2)."""
    for line in (
        b"{",
        b'{"type":"a/b","seq":1,"time":1,"data":[-0]}',
        b'{"type":"a/b","seq":-0,"time":1,"data":1}',
    ):
        with pytest.raises(LosslessDecodeError):
            parse_event_row(line)
        with pytest.raises(InvalidEventError, match="not JSON"):
            SessionEvent.from_line(line)


def test_escaped_envelope_keys_are_keys() -> None:
    """A foreign writer may escape any character of a key."""
    event = SessionEvent.from_line(b'{"type":"a/b","seq":1,"time":1,"data":1,"surfac\\u0065Op":"append"}')
    assert event.surface_op == "append"


def test_an_op_in_the_payload_is_not_the_events() -> None:
    """Only the envelope's own keys count."""
    event = SessionEvent.build(
        "a/b", 1, 1, {"surfaceOp": "append", "ignorable": True, "sourceEventSeqs": [0]}
    )
    assert (event.surface_op, event.ignorable, event.source_event_seqs) == (None, False, None)


def test_views_rename_and_ignore_the_unknown() -> None:
    """A view never fails for fields it does not know, even with keys msgspec cannot hold."""
    data = {
        "turn": 1,
        "step": 2,
        "callId": "c",
        "name": "sh",
        "arguments": "{",
        "extra": 1,
        "\ud800": 2,
    }
    view: Any = SessionEvent.build("tool/call", 0, 0, data).view()
    assert (view.turn, view.call_id, view.arguments) == (1, "c", "{")
    assert SessionEvent.build("tool/call", 0, 0, {"turn": 1}).view() is None
    assert SessionEvent.build("tool/call", 0, 0, 3).view() is None
    nested = {"header": {"config": {"provider": "p", "model": "m", "\ud800": 1}}, "reason": "initial"}
    assert SessionEvent.build("request/header", 0, 0, nested).view() is None


class Inner(msgspec.Struct):
    """An object within."""

    x: int


class Pair(msgspec.Struct, array_like=True):
    """A view of an array."""

    inner: Inner


def test_a_view_of_an_array_with_unholdable_keys_inside_is_none() -> None:
    """Only the keys of the data itself can be left out."""

    vocabulary.register_event_type("acme/pair", payload=Pair)
    try:
        assert SessionEvent.build("acme/pair", 0, 0, [{"x": 1}]).view() == Pair(Inner(1))
        assert SessionEvent.build("acme/pair", 0, 0, [{"x": 1, "\ud800": 1}]).view() is None
    finally:
        vocabulary.unregister_event_type("acme/pair")


def test_the_envelope_counts_as_a_level() -> None:
    """What is appended can be loaded: the whole line has at most 512 levels (S1)."""
    value: Any = 1
    for _ in range(511):
        value = [value]
    assert SessionEvent.from_line(SessionEvent.build("a/b", 0, 0, value).line).data == value
    with pytest.raises(InvalidEventError, match="511 levels"):
        SessionEvent.build("a/b", 0, 0, [value])


def test_event_rows_compare_by_identity() -> None:
    """Rows are storage, not values; compare their lines or events."""
    row = EventRow(0, "a/b", 0, b"{}")
    assert row != EventRow(0, "a/b", 0, b"{}")
    assert isinstance(pack_rows([SessionEvent.build("a/b", 0, 0, 1)])[0], EventRow)
