"""The providers' own SDKs send our exports over HTTP, and a server that speaks their protocols takes them.

Warnings are errors here as everywhere, so an SDK that only grumbles about an export fails the test, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from hypothesis import HealthCheck, given, settings

from tests.faults.lanes import need
from tests.interop.peer_process import PeerUnavailable
from tests.reported_faults import log_of
from tests.transcripts.hostile_logs import hostile_logs
from tests.transcripts.mock_process import ANSWER, MockServer
from tests.transcripts.sdk_types import gemini_config, sdk_problems
from turnlog import SessionEvent
from turnlog.testing.scripts import LogScript
from turnlog.transcripts import SHAPES, Shape, export

CASES = ["uncall-02", "reason-01", "reason-03", "reason-05", "shape-01", "shape-02"]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    """One server; a clear skip where Node is missing, a failure in CI."""
    try:
        running = MockServer()
    except PeerUnavailable as missing:
        need(False, f"the model server cannot run here: {missing}")
        raise
    with running:
        yield running


def to_anthropic(url: str, request: dict[str, Any]) -> str:
    """Send a request with the Anthropic SDK; return what was answered."""
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        message = client.messages.create(**request)
    return "".join(block.text for block in message.content if block.type == "text")


def to_chat(url: str, request: dict[str, Any]) -> str:
    """Send a request with the OpenAI SDK to Chat Completions; return what was answered."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        completion = client.chat.completions.create(**request)
    return str(completion.choices[0].message.content)


def to_responses(url: str, request: dict[str, Any]) -> str:
    """Send a request with the OpenAI SDK to Responses; return what was answered."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        return str(client.responses.create(**request).output_text)


def to_gemini(url: str, request: dict[str, Any]) -> str:
    """Send a request with the Google SDK; return what was answered."""
    options = genai.types.HttpOptions(base_url=url, api_version="v1beta")
    with genai.Client(api_key="none", http_options=options) as client:
        answer = client.models.generate_content(
            model=request["model"],
            contents=[genai.types.Content.model_validate(content) for content in request["contents"]],
            config=genai.types.GenerateContentConfig.model_validate(gemini_config(request)),
        )
    return str(answer.text)


SEND: dict[Shape, Callable[[str, dict[str, Any]], str]] = {
    "anthropic": to_anthropic,
    "openai-chat": to_chat,
    "openai-responses": to_responses,
    "gemini": to_gemini,
}


def full_log() -> list[SessionEvent]:
    """Return a log with everything a request can hold: header, tools, image, reasoning, parallel calls."""
    script = LogScript().start().step()
    tool = {"name": "shell", "description": "Run it.", "parameters": {"type": "object", "properties": {}}}
    config = {"provider": "acme", "model": "a1", "maxTokens": 64, "temperature": 0.5, "stop": ["END"]}
    header = {"config": config, "system": "Be brief.", "tools": [tool]}
    script.add("request/header", {"header": header, "reason": "initial"})
    attachment = {"attachmentId": "sha256:p", "mediaType": "image/png", "bytes": 8, "width": 1, "height": 1}
    user = {"content": [{"type": "text", "text": "See:"}, {"type": "image", "attachment": attachment}]}
    script.add(
        "user/message", {**user, "source": {"kind": "user"}, "role": "user", "id": "u"}, surfaceOp="append"
    )
    script.assistant("Both.", calls=["c-1", "c 2"]).call("c-1").result("c-1").call("c 2").result("c 2")
    return script.user("And?").events


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["full", *CASES])
def test_server_takes_the_export(server: MockServer, shape: Shape, name: str) -> None:
    """The SDK sends the export as it is, the server answers it, and sees every call with its result."""
    events = full_log() if name == "full" else log_of(name)
    exported = export(events, shape, images={"sha256:p": PNG}, sendable=True)
    assert sdk_problems(shape, exported.request) == []
    server.requests()
    assert SEND[shape](server.url, exported.request) == ANSWER
    (understood,) = server.requests()
    assert understood["roles"][-1] in ("user", "tool")
    # The server gives Gemini calls ids of its own, so they are counted, not compared.
    assert len(understood["calls"]) == len(understood["results"])
    if shape != "gemini":
        assert sorted(understood["calls"]) == sorted(understood["results"])


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(events=hostile_logs())
def test_server_takes_any_log(server: MockServer, shape: Shape, events: list[SessionEvent]) -> None:
    """Logs that are out of order and full of oddities are sent and answered, too."""
    exported = export(events, shape, images={"sha256:known": PNG}, sendable=True)
    assert SEND[shape](server.url, exported.request) == ANSWER


def test_types_see_what_is_wrong() -> None:
    """The reading of the SDKs' types is strict: an unknown field and a wrong type deep inside are found."""
    for shape in SHAPES:
        good = export(full_log(), shape, images={"sha256:p": PNG}).request
        assert sdk_problems(shape, good) == []
        key = {"openai-responses": "input", "gemini": "contents"}.get(shape, "messages")
        for wrong in ({"role": "user", "content": 7, "parts": 7}, {**good[key][0], "bogus": 1}):
            assert sdk_problems(shape, {**good, key: [*good[key], wrong]}), shape
