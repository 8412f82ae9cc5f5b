"""Headers: checks, key order, and the first line of a log file."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from turnlog.errors import CorruptLogError, InvalidEventError, UnsupportedFormatError
from turnlog.events.header import SessionHeader, header_line, parse_header_line

FULL: dict[str, Any] = {
    "version": 0,
    "id": "demo-1",
    "createdAt": 1700000000000,
    "cwd": "/srv/app",
    "parentSession": "p",
    "seedLength": 4,
    "origin": "subagent",
    "delegationDepth": 1,
    "agentPreset": "minimal",
}


def test_a_header_round_trips_with_its_key_order() -> None:
    """Known keys stand in the original's order, unknown ones are kept behind them."""
    shuffled = {"x": [1], **dict(reversed(FULL.items())), "y": {"z": "\ud800"}}
    header = SessionHeader.from_dict(shuffled)
    assert header.to_dict() == {**FULL, "x": [1], "y": {"z": "\ud800"}}
    assert list(header.to_dict()) == [*FULL, "x", "y"]
    assert SessionHeader.from_dict(header.to_dict()) == header
    assert hash(header) == hash(SessionHeader.from_dict(FULL))
    assert pickle.loads(pickle.dumps(header)) == header


def test_a_minimal_header_has_three_keys() -> None:
    """Absent optional keys are skipped."""
    header = SessionHeader(id="a", created_at=5)
    assert header.to_dict() == {"version": 0, "id": "a", "createdAt": 5}
    assert SessionHeader.from_dict({"version": 0.0, "id": "a", "createdAt": 5.0}) == header


def test_a_header_does_not_share_the_callers_objects() -> None:
    """Unknown values are copied both ways."""
    extra = {"list": [1]}
    header = SessionHeader.from_dict({"version": 0, "id": "a", "createdAt": 5, "extra": extra})
    extra["list"].append(2)
    header.to_dict()["extra"]["list"].append(3)
    assert header.to_dict()["extra"] == {"list": [1]}


BAD = [
    ({"version": 1}, "version"),
    ({"version": True}, "version"),
    ({"version": "0"}, "version"),
    ({"id": 7}, "id"),
    ({"createdAt": -1}, "createdAt"),
    ({"createdAt": 1.5}, "createdAt"),
    ({"createdAt": None}, "createdAt"),
    ({"cwd": 3}, "cwd"),
    ({"cwd": None}, "cwd"),
    ({"cwd": "relative/path"}, "cwd"),
    ({"cwd": ""}, "cwd"),
    ({"parentSession": 1}, "parentSession"),
    ({"agentPreset": 1}, "agentPreset"),
    ({"seedLength": -1}, "seedLength"),
    ({"seedLength": 2**53}, "seedLength"),
    ({"delegationDepth": 0.5}, "delegationDepth"),
    ({"origin": "fork"}, "origin"),
    ({"origin": None}, "origin"),
]


@pytest.mark.parametrize(("change", "key"), BAD)
def test_each_key_is_checked(change: dict[str, Any], key: str) -> None:
    """The error names the key."""
    with pytest.raises(InvalidEventError) as caught:
        SessionHeader.from_dict({**FULL, **change})
    assert caught.value.field == f"header.{key}"


def test_a_header_is_an_object_of_lossless_json_with_the_right_id() -> None:
    """A list, a set inside, or another session's header are refused."""
    with pytest.raises(InvalidEventError, match="must be an object"):
        SessionHeader.from_dict([])  # type: ignore[arg-type]  # the wrong type is the point
    with pytest.raises(InvalidEventError) as caught:
        SessionHeader.from_dict({**FULL, "more": {"x": {1}}})
    assert caught.value.field == "header.more.x"
    with pytest.raises(InvalidEventError, match="the session's id"):
        SessionHeader.from_dict(FULL, session_id="other")
    assert SessionHeader.from_dict(FULL, session_id="demo-1").id == "demo-1"


def test_the_header_line_always_states_the_depth() -> None:
    """Keys in file order, no spaces, delegationDepth 0 when absent, a newline."""
    assert header_line(SessionHeader(id="demo-1", created_at=1700000000000, cwd="/srv/app")) == (
        b'{"type":"session","version":0,"id":"demo-1","createdAt":1700000000000,'
        b'"cwd":"/srv/app","delegationDepth":0}\n'
    )
    line = header_line(SessionHeader.from_dict({**FULL, "x": 1, "type": "other"}))
    assert line.startswith(b'{"type":"session",')
    assert line.endswith(b'"delegationDepth":1,"agentPreset":"minimal","x":1}\n')


def test_a_header_line_reads_back() -> None:
    """Unknown keys stay, CRLF and spaces are whitespace, the last duplicate wins."""
    header = SessionHeader.from_dict({**FULL, "x": 1})
    assert parse_header_line(header_line(header)) == header
    line = b' {"type":"session","version":0,"id":"a","createdAt":1e3,"delegationDepth":0,"id":"b"} \r\n'
    assert parse_header_line(line).to_dict() == {
        "version": 0,
        "id": "b",
        "createdAt": 1000,
        "delegationDepth": 0,
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "no header line"),
        (b'{"type":"session"}', "no header line"),
        (b"{}\n{}\n", "no header line"),
        (b"\n", "not valid JSON"),
        (b"\xef\xbb\xbf{}\n", "not valid JSON"),
        (b"null\n", "not a session header"),
        (b"[]\n", "not a session header"),
        (b"{}\n", "not a session header"),
        (b'{"type":"session","version":0,"id":"a","createdAt":1}\n', "not a session header"),
        (b'{"type":"x","version":0,"id":"a","createdAt":1,"delegationDepth":0}\n', "not a session header"),
        (
            b'{"type":"session","version":0,"id":"a","createdAt":1,"delegationDepth":0,"sandboxMode":1}\n',
            "retired key sandboxMode",
        ),
        (
            b'{"type":"session","version":0,"id":"a","createdAt":1,"delegationDepth":0,"approvalPolicy":1}\n',
            "retired key approvalPolicy",
        ),
        (b'{"type":"session","version":"0","id":"a","createdAt":1,"delegationDepth":0}\n', "version"),
        (b'{"type":"session","version":0,"id":"a","createdAt":-0,"delegationDepth":0}\n', "not valid JSON"),
    ],
)
def test_bad_header_lines_are_damage(line: bytes, reason: str) -> None:
    """The error says what is wrong and names place and session."""
    with pytest.raises(CorruptLogError, match=reason) as caught:
        parse_header_line(line, session_id="s", path="/x/session.jsonl")
    assert (caught.value.session_id, caught.value.path, caught.value.offset) == ("s", "/x/session.jsonl", 0)


@pytest.mark.parametrize(
    ("line", "direction", "session_id"),
    [
        (b'{"version":7,"id":"a","shape":"new"}\n', "newer", "a"),
        (b'{"version":-1}\n', "older", "s"),
        (b'{"version":0.5,"id":9}\n', "newer", "9"),
    ],
)
def test_another_version_is_said_before_any_other_fault(line: bytes, direction: str, session_id: str) -> None:
    """A future shape is not called damage."""
    with pytest.raises(UnsupportedFormatError) as caught:
        parse_header_line(line, session_id="s")
    assert (caught.value.direction, caught.value.session_id) == (direction, session_id)
