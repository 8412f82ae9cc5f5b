"""Headers read in one step answer exactly as the one reader does."""

from __future__ import annotations

import pytest

from turnlog.backends.jsonl.quick_header import read_header
from turnlog.errors import LogError
from turnlog.events.header import SessionHeader, header_line, parse_header_line

FULL = SessionHeader(
    id="s:-0", created_at=5, cwd="/w", parent_session="p", seed_length=3, origin="subagent",
    delegation_depth=2, agent_preset="code",
)  # fmt: skip
PLAIN = header_line(SessionHeader(id="s", created_at=1))


@pytest.mark.parametrize(
    "line",
    [
        PLAIN,
        header_line(FULL),
        header_line(SessionHeader(id="s", created_at=1, cwd="/w")),
        header_line(SessionHeader(id="s", created_at=1, parent_session="", agent_preset="")),
        header_line(SessionHeader(id="\ud800", created_at=1)),
        header_line(SessionHeader(id="s", created_at=1, extra={"color": "x"})),
        PLAIN.replace(b'"createdAt":1', b'"createdAt":1e3'),
        PLAIN.replace(b"}\n", b"}\r\n"),
        PLAIN[:-1],
        PLAIN * 2,
        b"{}\n",
        b"null\n",
        PLAIN.replace(b'"createdAt":1', b'"createdAt":-0'),
        PLAIN.replace(b'"createdAt":1', b'"createdAt":-1'),
        PLAIN.replace(b'"createdAt":1', b'"createdAt":9007199254740992'),
        PLAIN.replace(b'"version":0', b'"version":4'),
        PLAIN.replace(b'"id":"s"', b'"id":"\xff"'),
        PLAIN.replace(b'"id":"s"', b'"id":"s","cwd":"relative"'),
        PLAIN.replace(b'"id":"s"', b'"id":"s","cwd":null'),
        PLAIN.replace(b'"id":"s"', b'"id":"s","origin":"else"'),
        PLAIN.replace(b'"id":"s"', b'"id":"x","id":"s"'),
    ],
)
def test_the_same_answer_as_the_one_reader(line: bytes) -> None:
    """JL44–JL49: the same header, or the same refusal."""

    def answer(read: object) -> object:
        try:
            return read(line, path="p") if read is parse_header_line else read_header(line, "p")
        except LogError as error:
            return type(error), str(error)

    assert answer(read_header) == answer(parse_header_line)
