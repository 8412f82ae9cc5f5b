"""Small events, rows and values that the tests of `turnlog.events` share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from turnlog.events import lossless
from turnlog.events.envelope import SessionEvent

SAFE = 2**53 - 1


def delta(
    seq: int, text: str = "hi", *, time: int = 100, kind: str = "text-delta", **more: Any
) -> dict[str, Any]:
    """Make a chunk event; `more` overrides turn, step, index, id and name."""
    chunk: dict[str, Any] = {"type": kind, "index": more.get("index", 0)}
    if kind == "tool-call-delta":
        chunk["id"] = more.get("id", "c1")
        if "name" in more:
            chunk["name"] = more["name"]
        chunk["argumentsDelta"] = text
    else:
        chunk["text"] = text
    data = {"turn": more.get("turn", 1), "step": more.get("step", 1), "chunk": chunk}
    return {"type": "assistant/chunk", "seq": seq, "time": time, "data": data}


def deltas(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    """Make a run of text deltas with seqs from `first` on."""
    return [delta(first + k, f"t{k}", time=100 + k, **more) for k in range(count)]


def plain(seq: int, type: str = "turn/start", **data: Any) -> dict[str, Any]:
    """Make an event that is never packed."""
    return {"type": type, "seq": seq, "time": 100 + seq, "data": data or {"turn": 1}}


def events(dicts: list[dict[str, Any]]) -> list[SessionEvent]:
    """Turn plain objects into events."""
    return [SessionEvent.from_dict(event) for event in dicts]


def text_of(*dicts: dict[str, Any]) -> bytes:
    """Encode events as plain lines, one event each."""
    return b"".join(lossless.encode(event) + b"\n" for event in dicts)


texts = st.text(st.characters(codec=None), max_size=12) | st.text(
    st.sampled_from(["\ud83d", "\ude00", "\udfff", '"', "\\", "\n", "\x00", "ü", "👋", "a"]), max_size=6
)
"""Any strings, lone surrogates included."""

numbers = (
    st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not (x == 0 and str(x)[0] == "-"))
    | st.sampled_from([2**53, 2**60, 10**21, 1e-7, 5e-324, 1.7976931348623157e308])
)
"""Numbers that are lossless JSON."""

values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts | st.sampled_from(["0", "7", "10", "01", "4294967295"]), inner, max_size=4)
    ),
    max_leaves=12,
)
"""Lossless JSON values."""


@st.composite
def logs(draw: st.DrawFn, max_events: int = 24) -> list[dict[str, Any]]:
    """Make a dense log of packed and unpacked events, with times over the whole range."""
    made: list[dict[str, Any]] = []
    time = draw(st.integers(-SAFE, SAFE))
    for seq in range(draw(st.integers(0, max_events))):
        time = draw(st.just(time) | st.integers(time - 3, time + 3) | st.integers(-SAFE, SAFE))
        time = max(-SAFE, min(SAFE, time))
        if draw(st.integers(0, 4)):
            kind = draw(st.sampled_from(["text-delta", "text-delta", "reasoning-delta", "tool-call-delta"]))
            more: dict[str, Any] = {"step": draw(st.sampled_from([1, 1, 1, 2]))}
            if kind == "tool-call-delta" and draw(st.booleans()):
                more["name"] = "read"
            made.append(delta(seq, draw(texts), time=time, kind=kind, **more))
        else:
            made.append({"type": "todo/write", "seq": seq, "time": time, "data": draw(values)})
    return made
