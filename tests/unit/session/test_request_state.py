"""Request header and context: canonical form, equality, folds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.conversations import fresh, in_step, request_header
from turnlog.errors import InvalidEventError
from turnlog.session.request_state import (
    canonical_header,
    fold_request_context,
    fold_request_header,
    header_equals,
)
from turnlog.session.session import Session

CONFIG: dict[str, Any] = {"provider": "acme", "model": "a1"}
TOOL = {"name": "read", "description": "d", "parameters": {"type": "object"}}


def test_canonical_form_drops_what_is_empty() -> None:
    """RH1: key order config, adapterDefaults, system, tools; empty parts and unset markers go."""
    full = {
        "tools": [TOOL],
        "system": "Be brief.",
        "adapterDefaults": {"maxTokens": True},
        "config": {**CONFIG, "maxTokens": 1},
    }
    assert list(canonical_header(full)) == ["config", "adapterDefaults", "system", "tools"]
    bare = {"config": CONFIG, "tools": [], "system": "", "adapterDefaults": {}}
    assert canonical_header(bare) == {"config": CONFIG}
    assert canonical_header({"config": CONFIG, "adapterDefaults": {"maxTokens": 1}}) == {"config": CONFIG}


BASE: dict[str, Any] = {"config": {**CONFIG, "maxTokens": 5}, "system": "s", "tools": [TOOL]}


@pytest.mark.parametrize(
    "other",
    [
        {**BASE, "config": {**BASE["config"], "model": "b"}},
        {**BASE, "config": {**BASE["config"], "provider": "b"}},
        {**BASE, "config": {**BASE["config"], "temperature": 0}},
        {**BASE, "config": {**BASE["config"], "reasoningEffort": "high"}},
        {**BASE, "config": {**BASE["config"], "maxTokens": True}},
        {**BASE, "config": {**BASE["config"], "stop": []}},
        {**BASE, "config": {**BASE["config"], "stop": ["x"]}},
        {**BASE, "adapterDefaults": {"maxTokens": True}},
        {**BASE, "system": "t"},
        {**BASE, "tools": [TOOL, {**TOOL, "name": "b"}]},
        {**BASE, "tools": [{"description": "d", "name": "read", "parameters": {"type": "object"}}]},
    ],
)
def test_equality_sees_every_field(other: dict[str, Any]) -> None:
    """RH2: each field counts, an empty stop list is not an absent one, tools by their text."""
    assert not header_equals(BASE, other)
    assert header_equals(other, dict(other))


def test_equality_sees_the_order_of_tools() -> None:
    """RH2: the same tools in another order are another header."""
    second = {**TOOL, "name": "write"}
    assert not header_equals({**BASE, "tools": [TOOL, second]}, {**BASE, "tools": [second, TOOL]})


def test_what_counts_as_equal() -> None:
    """RH3: absent and empty tool lists, 1 and 1.0, unset markers."""
    header = {"config": {**CONFIG, "maxTokens": 1}}
    assert header_equals(header, {"config": {**CONFIG, "maxTokens": 1.0}, "tools": []})
    assert header_equals(header, {**header, "adapterDefaults": {}})


def test_fold_takes_the_latest_or_the_baseline() -> None:
    """RH4, RH5: without a header the baseline as it is, else the last one in canonical form."""
    baseline = {"config": CONFIG, "tools": []}
    assert fold_request_header([]) is None
    assert fold_request_header([], baseline) == baseline
    session = in_step()
    session.append("request/header", request_header("first"))
    session.append("request/header", request_header("second", tools=[], system="s"))
    session.append("feedback/record", {"text": "x"})
    expected = {"config": {"provider": "acme", "model": "second"}, "system": "s"}
    assert fold_request_header(session.log, baseline) == expected
    assert fold_request_header([event.to_dict() for event in session.events]) == expected


def test_fold_refuses_a_latest_header_that_is_none() -> None:
    """SE9: a header without provider or model is named."""
    event = {"type": "request/header", "seq": 0, "time": 0, "data": {"header": {}}}
    with pytest.raises(InvalidEventError, match="config"):
        fold_request_header([event])


def test_session_follows_header_and_context() -> None:
    """RH8, RH10-RH12: nothing before the first record, then always the latest, as fresh objects."""
    session = in_step()
    assert (session.request_header(), session.request_context()) == (None, None)
    for size in (1, 2, 3):
        session.append("request/context", {**CONFIG, "contextWindow": size})
    session.append("request/header", request_header(system="s"))
    session.append("feedback/record", {"text": "x"})
    context, header = session.request_context(), session.request_header()
    assert context == {**CONFIG, "contextWindow": 3}
    assert header == {"config": CONFIG, "system": "s"}
    context.clear()
    header["config"].clear()
    assert session.request_context() == {**CONFIG, "contextWindow": 3} == fold_request_context(session.log)
    assert session.request_header() == {"config": CONFIG, "system": "s"}
    assert fold_request_context([]) is None


def test_seeded_session_takes_the_last_record() -> None:
    """RH9: the first read of a seeded log gives its last context."""
    source = in_step()
    source.append("request/context", {**CONFIG, "contextWindow": 1})
    source.append("request/context", {**CONFIG, "contextWindow": 2})
    session = Session.create("t", seed=source.log)
    assert session.request_context() == {**CONFIG, "contextWindow": 2}


def test_legacy_headers_are_refused() -> None:
    """RH6, RH7: in a seed and in an append."""
    delta = {"type": "request/header-delta", "seq": 0, "time": 0, "data": {}}
    fallback = {
        "type": "request/header",
        "seq": 0,
        "time": 0,
        "data": {**request_header(), "reason": "fallback"},
    }
    for event in (delta, fallback):
        with pytest.raises(InvalidEventError):
            Session.create("s", seed=[event])
        with pytest.raises(InvalidEventError):
            fresh(strict=False).append(str(event["type"]), event["data"])
