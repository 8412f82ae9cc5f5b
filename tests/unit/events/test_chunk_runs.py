"""Packed rows: packing, expansion, and every way in which a stored row can be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.unit.events.samples import SAFE, delta, deltas, events, logs, plain
from turnlog.events import lossless
from turnlog.events.batch import EncodedBatch
from turnlog.events.chunk_runs import ChunkRow, MalformedRowError, expand, pack, pack_lines, parse_row
from turnlog.events.deltas import chunk_delta, delta_of
from turnlog.events.lossless import LosslessDecodeError
from turnlog.events.rows import decode_row


def types(records: list[dict[str, Any]]) -> list[str]:
    """Return the types of records in order."""
    return [record["type"] for record in records]


def test_a_run_becomes_one_row_and_expands_to_the_same_events() -> None:
    """Text, reasoning and tool-call runs have their own tags."""
    for kind, tag, key in (
        ("text-delta", "text-chunks", "texts"),
        ("reasoning-delta", "reasoning-chunks", "texts"),
        ("tool-call-delta", "tool-call-chunks", "args"),
    ):
        run = deltas(5, 4, kind=kind)
        records = pack(run)
        assert types(records) == [tag]
        assert records[0]["data"][key] == ["t0", "t1", "t2", "t3"]
        assert [e for record in records for e in expand(record)] == run


def test_a_row_has_the_originals_key_order() -> None:
    """The golden shape of a tool-call row, with and without a name."""
    named = [delta(k, "{", time=1, kind="tool-call-delta", name="read", index=1) for k in range(3)]
    assert pack_lines(named) == [
        b'{"type":"tool-call-chunks","seq0":0,"time0":1,"data":{"turn":1,"step":1,"index":1,'
        b'"dt":[0,0],"id":"c1","name":"read","args":["{","{","{"]}}'
    ]
    unnamed = [delta(k, "", time=1, kind="tool-call-delta") for k in range(3)]
    assert b'"name"' not in pack_lines(unnamed)[0]
    assert expand(pack(unnamed)[0]) == unnamed


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short_runs_stay_verbatim(count: int) -> None:
    """Three members are the minimum (CR4)."""
    assert pack(deltas(0, count)) == deltas(0, count)


def test_other_events_stand_between_runs_in_order() -> None:
    """Markers and other types end a run and stay as they are."""
    log = [*deltas(0, 3), plain(3), *deltas(4, 3), delta(7, kind="reasoning-delta")]
    assert types(pack(log)) == ["text-chunks", "turn/start", "text-chunks", "assistant/chunk"]


@pytest.mark.parametrize(
    "second",
    [
        deltas(4, 3),
        deltas(3, 3, kind="reasoning-delta"),
        deltas(3, 3, index=1),
        deltas(3, 3, step=2),
        deltas(3, 3, turn=2),
    ],
)
def test_a_change_splits_the_run(second: list[dict[str, Any]]) -> None:
    """A hole in the seqs, another kind, block, step or turn begin a new row (CR6)."""
    assert types(pack([*deltas(0, 3), *second])) == [
        "text-chunks",
        "reasoning-chunks" if second[0]["data"]["chunk"]["type"] == "reasoning-delta" else "text-chunks",
    ]


def test_tool_calls_split_on_id_and_on_the_presence_of_a_name() -> None:
    """One row holds one call, and its name is there for all members or for none (CR7)."""
    first = deltas(0, 3, kind="tool-call-delta", name="a")
    for more in ({"id": "other", "name": "a"}, {}, {"name": "b"}):
        assert len(pack([*first, *deltas(3, 3, kind="tool-call-delta", **more)])) == 2


def test_a_time_gap_beyond_exact_doubles_splits() -> None:
    """The difference of two safe times may be unsafe (CR9)."""
    times = [-SAFE, -SAFE, -SAFE, SAFE - 1, SAFE - 1, SAFE - 1]
    run = [delta(k, time=time) for k, time in enumerate(times)]
    records = pack(run)
    assert types(records) == ["text-chunks", "text-chunks"]
    assert [e for record in records for e in expand(record)] == run
    assert EncodedBatch.of(events(run)).text() == b"".join(line + b"\n" for line in pack_lines(run))


ODD: list[Any] = [
    {**delta(0), "ignorable": True},
    {**delta(0), "time": 1.5},
    {**delta(0), "seq": -1},
    {**delta(0), "data": 3},
    {**delta(0), "data": {**delta(0)["data"], "extra": 1}},
    delta(0, turn="1"),
    delta(0, turn=True),
    delta(0, step=None),
    {**delta(0), "data": {"turn": 1, "step": 1, "chunk": "x"}},
    delta(0, index="0"),
    delta(0, kind="finish"),
    delta(0, 3),  # type: ignore[arg-type]  # a text that is none
    delta(0, kind="tool-call-delta", id=3),
    delta(0, kind="tool-call-delta", name=3),
    delta(0, 3, kind="tool-call-delta"),  # type: ignore[arg-type]  # a text that is none
    {"type": "assistant/chunk", "seq": 0, "time": 1, "data": {"turn": 1, "step": 1, "chunk": {"index": 0}}},
    {
        "type": "assistant/chunk",
        "seq": 0,
        "time": 1,
        "data": {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": "", "x": 1}},
    },
    {**delta(0), "type": "other/chunk"},
    "no object",
    None,
]


@pytest.mark.parametrize("event", ODD)
def test_odd_events_are_never_packed(event: Any) -> None:
    """What a row could not give back exactly stays verbatim."""
    assert delta_of(event) is None
    assert pack([event, event, event]) == [event, event, event]


def test_fractional_turns_and_integral_floats_pack() -> None:
    """Turn, step and index are any numbers; seq and time are integral ones."""
    run = [{**delta(k, turn=1.5, index=0.5), "seq": float(k), "time": float(k)} for k in range(3)]
    assert pack_lines(run) == [
        b'{"type":"text-chunks","seq0":0,"time0":0,"data":{"turn":1.5,"step":1,"index":0.5,'
        b'"dt":[1,1],"texts":["hi","hi","hi"]}}'
    ]
    assert chunk_delta(delta(0, turn=1.5)["data"]) is not None


@given(logs())
def test_packing_and_expanding_is_the_identity(log: list[dict[str, Any]]) -> None:
    """Any log comes back, over the whole range of times, through text (CR14)."""
    records = [json.loads(lossless.encode(record)) for record in pack(log)]
    assert [event for record in records for event in expand(record)] == json.loads(lossless.encode(log))


@given(logs())
def test_rows_of_a_batch_are_the_packed_lines(log: list[dict[str, Any]]) -> None:
    """Both ways of packing write the same bytes, and the typed reader gives the same events."""
    made = events(log)
    if not made:
        return
    batch = EncodedBatch.of(made)
    assert [row.line for row in batch.rows] == pack_lines(log)
    read = [decode_row(row.line) for row in batch.rows]
    assert [event for row in read for event in row.events()] == made
    for row, again in zip(batch.rows, read, strict=True):
        assert (row.first_seq, row.last_seq, row.count, row.type, row.time) == (
            again.first_seq,
            again.last_seq,
            again.count,
            again.type,
            again.time,
        )
        if isinstance(row, ChunkRow):
            assert isinstance(again, ChunkRow)
            assert (row.last_time, row.kind, row.turn, row.nbytes) == (
                again.last_time,
                again.kind,
                again.turn,
                again.nbytes,
            )


@pytest.mark.parametrize(
    "value", [None, 3, "x", [], {"type": "turn/start"}, {"type": 3}, {"type": ["text-chunks"]}]
)
def test_other_records_stand_for_themselves(value: Any) -> None:
    """Expansion does not look at what has no tag (CR11)."""
    assert expand(value) == [value]


TEXT: dict[str, Any] = {
    "type": "text-chunks",
    "seq0": 5,
    "time0": 100,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [1, -2], "texts": ["a", "b", "c"]},
}
CALL: dict[str, Any] = {
    "type": "tool-call-chunks",
    "seq0": 5,
    "time0": 100,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [], "id": "c", "name": "n", "args": ["a"]},
}


def changed(row: dict[str, Any], **data: Any) -> dict[str, Any]:
    """Return a row with other data; a value of `...` takes the key away."""
    merged = {**row["data"], **data}
    return {**row, "data": {key: value for key, value in merged.items() if value is not ...}}


MALFORMED = [
    {**TEXT, "data": 3},
    {**TEXT, "data": []},
    {**TEXT, "extra": 1},
    {key: TEXT[key] for key in ("type", "seq0", "data")},
    {**TEXT, "seq0": -1},
    {**TEXT, "seq0": 1.5},
    {**TEXT, "seq0": 2**53},
    {**TEXT, "seq0": "5"},
    {**TEXT, "time0": 1.5},
    {**TEXT, "time0": 2**53},
    {**TEXT, "time0": None},
    changed(TEXT, texts=..., args=["a", "b", "c"]),
    changed(TEXT, texts=["a", 1, "c"]),
    changed(TEXT, texts="abc"),
    changed(TEXT, texts=[], dt=[]),
    changed(TEXT, dt=[1]),
    changed(TEXT, dt=[1, 2, 3]),
    changed(TEXT, dt=[1, 1.5]),
    changed(TEXT, dt=[1, "2"]),
    changed(TEXT, dt=[1, True]),
    changed(TEXT, dt="12"),
    changed(TEXT, dt=[1, 2**53]),
    changed(TEXT, dt=[-(2**53), 1]),
    changed(TEXT, extra=1),
    changed(TEXT, name="n"),
    changed(TEXT, turn="1"),
    changed(TEXT, turn=True),
    changed(TEXT, step=None),
    changed(TEXT, index=[]),
    {**TEXT, "seq0": SAFE - 1},
    {**TEXT, "time0": SAFE},
    {**changed(TEXT, dt=[-1, 0]), "time0": -SAFE},
    changed(CALL, id=...),
    changed(CALL, id=3),
    changed(CALL, name=3),
    changed(CALL, args=...),
    changed(CALL, args=[3]),
    changed(CALL, texts=["a"]),
]


@pytest.mark.parametrize("record", MALFORMED)
def test_malformed_rows_are_refused_both_as_object_and_as_line(record: dict[str, Any]) -> None:
    """The typed decode and the exact one draw the same line (CR13)."""
    with pytest.raises(MalformedRowError, match=f"malformed {record['type']} storage row"):
        expand(record)
    line = lossless.encode(record)
    with pytest.raises(MalformedRowError):
        parse_row(line, record["type"])
    surrogate = line.replace(b'"type":', b'"\\u0074ype":', 1)
    with pytest.raises(MalformedRowError):
        parse_row(surrogate, record["type"])


GOOD = [
    TEXT,
    CALL,
    changed(CALL, name=...),
    changed(TEXT, turn=1.5),
    changed(TEXT, texts=["one"], dt=[]),
    {**TEXT, "seq0": SAFE - 2},
    {**changed(TEXT, dt=[SAFE, -SAFE]), "time0": 0},
    {**changed(TEXT, dt=[-SAFE, -SAFE]), "time0": SAFE},
]


@pytest.mark.parametrize("record", GOOD)
def test_good_rows_pass_both_ways(record: dict[str, Any]) -> None:
    """One member is enough on reading, and running times may touch the bounds."""
    row = parse_row(lossless.encode(record), record["type"])
    assert [event.to_dict() for event in row.events()] == expand(record)
    assert row.body().times[-1] == row.last_time


@pytest.mark.parametrize(
    "change",
    [
        (b'"seq0":5', b'"seq0":5.0'),
        (b'"dt":[1,-2]', b'"dt":[1e0,-2.0]'),
        (b'"a"', b'"\\ud800"'),
        (b'"time0":100', b'"time0": 1.0e2'),
        (b'"seq0"', b'"\\u0073eq0"'),
    ],
)
def test_foreign_spellings_are_read_and_kept(change: tuple[bytes, bytes]) -> None:
    """What msgspec refuses is read exactly; the line stays as it was written (L1)."""
    line = lossless.encode(TEXT).replace(*change)
    row = parse_row(line, "text-chunks")
    assert row.line == line
    assert (row.first_seq, row.count, row.time0, row.last_time) == (5, 3, 100, 99)
    assert [event.seq for event in row.events()] == [5, 6, 7]


@pytest.mark.parametrize(
    "change",
    [
        (b'"dt":[1,-2]', b'"dt":[1,-0]'),
        (b'"turn":1', b'"turn":-0.0'),
        (b'"texts":["a","b","c"]}}', b'"texts":["a","b","c"]} , "x":-0}'),
        (b'"a"', b'"\xff"'),
        (b'"index":0', b'"index":1e999'),
        (b'"c"]}}', b'"c"]}'),
    ],
)
def test_rows_that_are_no_lossless_json_are_refused(change: tuple[bytes, bytes]) -> None:
    """Negative zero, bad UTF-8 and overflow do not hide in a packed row."""
    line = lossless.encode(TEXT).replace(*change)
    with pytest.raises(LosslessDecodeError):
        parse_row(line, "text-chunks")


def test_minus_zero_in_a_text_is_text() -> None:
    """Dates and the like in deltas are nobody's numbers."""
    line = lossless.encode(changed(TEXT, texts=["2024-01-01", '-0,"texts":[', "c"]))
    assert parse_row(line, "text-chunks").count == 3
    moved = (
        b'{"data":{"texts":["-0"],"turn":1,"step":1,"index":0,"dt":[]},'
        b'"type":"text-chunks","seq0":0,"time0":0}'
    )
    assert decode_row(moved).count == 1
