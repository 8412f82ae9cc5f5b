"""From messages to turns with complete pairs: the part of an export that all providers share.

Owns pairing, placeholders, blank and half texts, arguments, ids and names. What a provider wants of roles,
grouping and reasoning belongs to its shape.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from turnlog.session.repair import TEXT_NOT_STARTED, TEXT_OUTCOME_UNKNOWN
from turnlog.transcripts.history import History, Said
from turnlog.transcripts.ids import LEGAL, CallIds, ToolNames
from turnlog.transcripts.images import ImageGate, attachments_in, image_label
from turnlog.transcripts.options import Settings
from turnlog.transcripts.parts import (
    CallPart,
    ImagePart,
    ModelPart,
    ModelTurn,
    ReasoningPart,
    Result,
    TextPart,
    Turn,
    UserPart,
    UserTurn,
)
from turnlog.transcripts.replay import replay_entries
from turnlog.transcripts.wire_text import (
    RAW_ARGUMENTS,
    arguments_text,
    cut_middle,
    parse_arguments,
    whole_characters,
    whole_value,
)

NO_OUTPUT: Final = "(no output)"
"""The text of a result that has none."""


def assemble(history: History, settings: Settings) -> list[Turn]:
    """Turn a history into turns in which every call has its result.

    Args:
        history: What the log says.
        settings: What the export is for, and its report.

    Returns:
        Turns in order. None is empty, no text is blank, no text has half characters.
    """
    return _Assembler(history, settings).turns


class _Assembler:
    def __init__(self, history: History, settings: Settings) -> None:
        self.turns: list[Turn] = []
        self._history = history
        self._settings = settings
        self._report = settings.report
        legal = LEGAL[settings.shape]
        self._ids = CallIds(legal.call_id, settings.hide)
        self.names = ToolNames(legal.name, settings.hide)
        settings.names = self.names
        total = sum(1 for said in history.said for _ in attachments_in(said.message))
        self._gate = ImageGate(settings.shape, settings.limits, settings.images, total)
        self._open: dict[str, deque[CallPart]] = {}
        for said in history.said:
            if said.message.get("role") == "assistant":
                self._model_message(said)
            else:
                self._user_message(said)
        self._close_calls()

    # -- messages ---------------------------------------------------------------------------------

    def _user_message(self, said: Said) -> None:
        message, seq = said.message, said.seq
        role = message.get("role")
        if role != "user":
            self._report.add("role-changed", seq, repr(role))
        parts: list[UserPart] = []
        answered = False
        for block in _blocks(message):
            if _kind(block) == "tool-result":
                answered = True
                self._take_result(block, seq)
            else:
                parts += self._content(block, seq)
        if parts:
            self.turns.append(UserTurn(seq, parts))
        elif not answered:
            self._report.add("empty-message", seq)

    def _model_message(self, said: Said) -> None:
        message, seq = said.message, said.seq
        source = message.get("source")
        source = dict(source) if isinstance(source, Mapping) else {}
        # Only an answer without an event of its own carries the flag; others are marked in their events.
        if source.get("interrupted") is True:
            self._report.add("partial-answer", seq)
        is_whole = seq not in self._history.interrupted and source.get("interrupted") is not True
        turn = ModelTurn(seq, source, [], self._settings.target.made(source), is_whole)
        blocks = _blocks(message)
        for block, replay in zip(blocks, replay_entries({**message, "content": blocks}), strict=True):
            turn.parts += self._model_part(block, replay, seq)
        if turn.parts:
            self.turns.append(turn)
            for call in turn.calls:
                self._open.setdefault(call.log_id, deque()).append(call)
        else:
            self._report.add("empty-message", seq)

    def _model_part(self, block: Any, replay: dict[str, Any], seq: int) -> list[ModelPart]:
        kind = _kind(block)
        if kind == "text" and isinstance(block.get("text"), str):
            return [TextPart(text, seq, replay)] if (text := self._text(block["text"], seq)) else []
        if kind == "reasoning":
            said = block.get("text") if isinstance(block.get("text"), str) else ""
            text = self._settings.hide(whole_characters(said))
            return [ReasoningPart(text, seq, replay, is_exact=text == said)]
        if kind == "tool-call":
            return [self._call(block, replay, seq)]
        if kind == "tool-result":
            self._take_result(block, seq)
            return []
        if kind == "image":
            self._report.add("image-left-out", seq, "an answer cannot hold an image")
            return [TextPart(f"[{self._label(block)}]", seq)]
        return [self._unknown(block, seq)]

    # -- calls and results ------------------------------------------------------------------------

    def _call(self, block: Mapping[str, Any], replay: dict[str, Any], seq: int) -> CallPart:
        log_id = block["id"] if isinstance(block.get("id"), str) else ""
        wire_id = self._ids.take(log_id)
        if wire_id != log_id:
            self._report.add("call-id-changed", seq, f"{self._short(log_id)} became {wire_id}")
        value, text = self._arguments(block.get("arguments"), seq, log_id)
        return CallPart(wire_id, self._name(block.get("name"), seq), log_id, value, text, seq, replay)

    def _name(self, name: object, seq: int) -> str:
        name = name if isinstance(name, str) else ""
        wire = self.names.of(name)
        if wire != name:
            self._report.add("tool-name-changed", seq, f"{self._short(name)} became {wire}")
        return wire

    def _arguments(self, raw: object, seq: int, call_id: str) -> tuple[dict[str, Any], str]:
        if isinstance(raw, dict):
            raw = arguments_text(raw)
        elif not isinstance(raw, str):
            raw = "" if raw is None else str(raw)
        raw = self._whole(raw, seq)
        value = parse_arguments(raw)
        if value is None and not raw.strip():
            self._report.add("arguments-empty", seq, self._short(call_id))
            return {}, "{}"
        if value is None:
            self._report.add("arguments-wrapped", seq, self._short(call_id))
            value = {RAW_ARGUMENTS: self._settings.hide(raw)}
            return value, arguments_text(value)
        if "\\ud" in raw.lower():
            value, replaced = whole_value(value)
            if replaced:
                self._report.add("lone-surrogate", seq)
                raw = arguments_text(value)
        if (hidden := self._settings.hide_value(value)) != value:
            self._report.add("redacted", seq)
            return hidden, arguments_text(hidden)
        return value, raw

    def _take_result(self, block: Mapping[str, Any], seq: int) -> None:
        call_id = block.get("toolCallId")
        call_id = call_id if isinstance(call_id, str) else ""
        waiting = self._open.get(call_id)
        if not waiting:
            known = call_id in self._open
            self._report.add("duplicate-result" if known else "orphan-result", seq, self._short(call_id))
            return
        call = waiting.popleft()
        if seq >= self._history.end:
            self._note_made_up(call)
        last = self.turns[-1] if self.turns else None
        if not (isinstance(last, ModelTurn) and any(call is other for other in last.calls)):
            self._report.add("result-moved", seq, self._short(call_id))
        content: list[TextPart | ImagePart] = []
        inner = block.get("content")
        if isinstance(inner, str):
            inner = [{"type": "text", "text": inner}]
        for piece in inner if isinstance(inner, list) else []:
            content += self._content(piece, seq)
        if not content:
            self._report.add("result-empty", seq, self._short(call_id))
            content = [TextPart(NO_OUTPUT, seq)]
        call.result = Result(content, block.get("isError") is True, seq)

    def _close_calls(self) -> None:
        for turn in self.turns:
            for call in turn.calls if isinstance(turn, ModelTurn) else ():
                if call.result is None:
                    self._note_made_up(call)
                    started = self._history.was_started(call.log_id, turn.seq)
                    text = TEXT_OUTCOME_UNKNOWN if started else TEXT_NOT_STARTED
                    call.result = Result([TextPart(text, turn.seq)], is_error=True, seq=turn.seq)

    def _note_made_up(self, call: CallPart) -> None:
        self._report.add("result-made-up", call.seq, self._short(call.log_id))
        if call.log_id in self._history.waiting:
            self._report.add("pending-approval", call.seq, self._short(call.log_id))

    # -- content ----------------------------------------------------------------------------------

    def _content(self, block: Any, seq: int) -> list[UserPart]:
        kind = _kind(block)
        if kind in ("text", "reasoning") and isinstance(block.get("text"), str):
            return [TextPart(text, seq)] if (text := self._text(block["text"], seq)) else []
        if kind == "image" and isinstance(block.get("attachment"), Mapping):
            return [self._image(block["attachment"], seq)]
        return [self._unknown(block, seq)]

    def _image(self, attachment: Mapping[str, Any], seq: int) -> UserPart:
        verdict = self._gate.judge(attachment)
        label = self._settings.hide(whole_characters(image_label(attachment)))
        if isinstance(verdict, str):
            self._report.add("image-left-out", seq, verdict)
            return TextPart(f"[{label}: left out, {verdict}]", seq)
        return ImagePart(verdict[0], verdict[1], label, seq)

    def _unknown(self, block: Any, seq: int) -> TextPart:
        what = self._short(_kind(block) or "unknown")
        self._report.add("unknown-block", seq, what)
        return TextPart(f"[content of type {what}: left out]", seq)

    def _label(self, block: Mapping[str, Any]) -> str:
        attachment = block.get("attachment")
        label = image_label(attachment if isinstance(attachment, Mapping) else {})
        return self._settings.hide(whole_characters(label))

    def _text(self, text: str, seq: int) -> str:
        """Return a text as it is sent, empty if nothing of it can be."""
        if not text.strip():
            self._report.add("blank-text", seq)
            return ""
        text = self._whole(text, seq)
        if (hidden := self._settings.hide(text)) != text:
            self._report.add("redacted", seq)
            text = hidden
        limit = self._settings.limits.max_text
        if limit is not None and len(text) > limit:
            self._report.add("text-cut", seq, f"{len(text)} characters, at most {limit}")
            text = cut_middle(text, limit)
        return text

    def _whole(self, text: str, seq: int) -> str:
        whole = whole_characters(text)
        if "\ufffd" in whole and whole.count("\ufffd") != text.count("\ufffd"):
            self._report.add("lone-surrogate", seq)
        return whole

    def _short(self, text: str) -> str:
        """Return a name or id for the report and for placeholders: safe, redacted and short."""
        flat = " ".join(self._settings.hide(whole_characters(text)).split())
        return flat if len(flat) <= 60 else flat[:59] + "…"


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else ""
