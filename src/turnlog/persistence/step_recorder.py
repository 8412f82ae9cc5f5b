"""One step: the request, the stream, the answer and the tool calls of one model call.

Owns the step's bracket and what belongs inside it, and answers the calls that are left over when the step is
left. The turn owns the order of steps; each tool call owns its own states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from turnlog.errors import UsageError, quote
from turnlog.events.envelope import EventRow
from turnlog.persistence.recorder import message_blocks, unanswered_payload, write_closing
from turnlog.persistence.tool_recorder import ToolRecorder
from turnlog.session.facts import facts_of
from turnlog.session.ids import new_message_id
from turnlog.session.request_state import canonical_header, header_equals

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.lossless import JsonValue
    from turnlog.persistence.turn_recorder import TurnRecorder


class StepRecorder:
    """`async with turn.step() as step`: one model call and the tool calls that it causes.

    Leaving the block answers what was not answered and writes `step/end`; it does not flush, since the next
    request, the next tool call or the end of the turn does.
    """

    __slots__ = (
        "_calls",
        "_config",
        "_next_chunk",
        "_open",
        "_ranges",
        "_turn",
        "number",
        "session",
    )

    def __init__(self, turn: TurnRecorder) -> None:
        """Prepare a step; made by `turn.step`.

        Args:
            turn: The open turn.
        """
        self._turn = turn
        self.session = turn.session
        self.number = 0
        """Number of the step in its turn, from 1; 0 before the step is entered."""
        self._open = False
        self._calls: dict[str, ToolRecorder] = {}
        self._config: Mapping[str, Any] = {}
        # Chunks of the running attempt as half-open ranges of seqs: a stream is one range unless other
        # events fall between its chunks, so it costs no integer per chunk.
        self._ranges: list[list[int]] = []
        self._next_chunk = -1

    @property
    def turn_number(self) -> int:
        """Number of the turn that this step belongs to."""
        return self._turn.number

    @property
    def is_open(self) -> bool:
        """Whether the step has been entered and not left."""
        return self._open

    async def __aenter__(self) -> StepRecorder:
        if self.number:
            raise UsageError(f"step {self.number} was entered before; make another one with turn.step()")
        self._turn.enter_step(self)
        number = self.session.next_step
        self.session.append("step/start", {"turn": self.turn_number, "step": number})
        self.number = number
        self._open = True
        return self

    async def request(
        self,
        *,
        config: Mapping[str, Any],
        system: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        context: Mapping[str, Any] | None = None,
        adapter_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the state of the request that is about to be sent, and make the log durable (D3).

        The header is written when the session object makes its first request, and later when it differs; the
        context when it differs. Call it again before another attempt of the same step: the answer then cites
        the chunks of that attempt only.

        Args:
            config: `{provider, model, reasoningEffort?, temperature?, maxTokens?, stop?}`.
            system: System prompt; empty counts as none.
            tools: Tool schemas `{name, description, parameters}`; empty counts as none.
            context: Facts about the model, `{contextWindow?}`; `provider` and `model` come from `config`.
                None says nothing new.
            adapter_defaults: `{reasoningEffort?: true, maxTokens?: true}` for values the adapter filled in.

        Raises:
            UsageError: The step is not open, or was closed with its session meanwhile.
            InvalidEventError: `config` lacks a provider or a model, or something is not lossless JSON.
            BackendError: The log could not be made durable. Do not send the request.

        Cancellation: the request must not be sent; what was recorded stays.
        """
        self._check_open("request()")
        session = self.session
        header = canonical_header(
            {
                "config": dict(config),
                **({} if adapter_defaults is None else {"adapterDefaults": dict(adapter_defaults)}),
                **({} if system is None else {"system": system}),
                **({} if tools is None else {"tools": list(tools)}),
            }
        )
        known = session.request_header()
        if not session.has_requested or known is None or not header_equals(known, header):
            reason = "change" if session.has_requested else "initial" if known is None else "resume"
            session.append("request/header", {"header": header, "reason": reason})
            session.has_requested = True
        self._config = header["config"]
        self._record_context(context)
        self._ranges = []
        self._next_chunk = -1
        await session.flush()
        self._check_open("request()")  # the store may have been closed meanwhile: no answer could be recorded

    def _record_context(self, context: Mapping[str, Any] | None) -> None:
        route = {"provider": self._config["provider"], "model": self._config["model"]}
        known = self.session.request_context()
        if context is None and known is not None and {**known, **route} == known:
            return
        stated = {**route, **({} if context is None else context)}
        if stated != known:
            self.session.append("request/context", stated)

    def chunk(self, chunk: dict[str, Any]) -> None:
        """Record one streamed chunk; costs microseconds and never waits (D1).

        Args:
            chunk: A stream chunk, for example `{"type": "text-delta", "index": 0, "text": "Let me"}`.

        Raises:
            UsageError: The step is not open.
            InvalidEventError: The chunk is not lossless JSON.
            BackpressureError: Too much is waiting; `await session.drain()` and record the chunk again (D4).
        """
        if not self._open:
            self._check_open("chunk()")
        session = self.session
        seq = session.seq
        session.append_chunk(self._turn.number, self.number, chunk)
        if seq == self._next_chunk:
            self._next_chunk = seq + 1
        else:
            self._begin_range(seq)

    def _begin_range(self, seq: int) -> None:
        self._end_range()
        self._ranges.append([seq, seq + 1])
        self._next_chunk = seq + 1

    def _end_range(self) -> None:
        if self._ranges:
            self._ranges[-1][1] = self._next_chunk

    def assistant(
        self,
        blocks: str | Sequence[Mapping[str, Any]],
        *,
        provider: str | None = None,
        model: str | None = None,
        usage: Mapping[str, Any] | None = None,
        replay_state: JsonValue = None,
        interrupted: bool = False,
    ) -> SessionEvent:
        """Record the model's answer, citing the chunks it was made of.

        Args:
            blocks: Content blocks, or text. An empty list is a legal answer.
            provider: Who answered; by default as in this step's request.
            model: Which model answered; by default as in this step's request.
            usage: Token counts of the call.
            replay_state: Opaque state that the provider wants back, or None.
            interrupted: Whether the stream was cut and this is what had arrived.

        Returns:
            The `assistant/message` event.

        Raises:
            UsageError: The step is not open, or the provider or the model is not known.
            InvalidEventError: Something is not lossless JSON.
        """
        self._check_open("assistant()")
        content = message_blocks(blocks, "step.assistant()")
        source: dict[str, Any] = {
            "kind": "model",
            "provider": self._route("provider", provider),
            "model": self._route("model", model),
        }
        if replay_state is not None:
            source["replayState"] = replay_state
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content,
            "source": source,
            "id": new_message_id(),
        }
        data: dict[str, Any] = {"turn": self.turn_number, "step": self.number, "message": message}
        if interrupted:
            data["interrupted"] = True
        if usage is not None:
            data["usage"] = dict(usage)
        self._end_range()
        seqs = [seq for start, end in self._ranges for seq in range(start, end)]
        event = self.session.append("assistant/message", data, surface_op="append", source_event_seqs=seqs)
        self._ranges = []
        self._next_chunk = -1
        return event

    def _route(self, key: str, given: str | None) -> str:
        value = self._config.get(key) if given is None else given
        if not isinstance(value, str) or not value:
            raise UsageError(
                f"step.assistant() needs the {key}: pass {key}=..., or call step.request() before"
            )
        return value

    def tool(self, call_id: str, name: str, arguments: str) -> ToolRecorder:
        """Prepare to run one tool call; `async with` records it durably and then runs the body.

        Args:
            call_id: Id of the tool-call block in this step's answer.
            name: Name of the tool.
            arguments: The raw text that the model produced.

        Returns:
            The recorder to enter.

        Raises:
            UsageError: The step is not open, or the arguments are not text.
        """
        self._check_open("tool()")
        if not isinstance(arguments, str):
            raise UsageError(
                "step.tool() takes the arguments as the raw text that the model produced; "
                "pass turnlog.dumps(arguments)"
            )
        return ToolRecorder(self, call_id, name, arguments)

    def check_call(self, call_id: str) -> None:
        """Say whether a call may be entered now; asked by the call itself.

        Args:
            call_id: Its id.

        Raises:
            UsageError: The step is not open, the answer did not request the call, or it was entered before.
        """
        self._check_open("tool()")
        if call_id in self._calls or self.session.is_recorded(call_id):
            raise UsageError(
                f"tool call {quote(call_id)} was entered before in this step; each call runs once"
            )
        if self.session.strict and call_id not in self.session.pending_calls:
            raise UsageError(
                f"no answer of step {self.number} requests tool call {quote(call_id)}; "
                "record the answer with its tool-call block by step.assistant() first"
            )

    def add_call(self, call: ToolRecorder) -> None:
        """Take in a call that has been recorded; told by the call itself.

        Args:
            call: The call.
        """
        self._calls[call.call_id] = call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return  # closed together with its turn
        running = self.close(error)
        if running and error is None:
            raise UsageError(
                f"step {self.number} was left while tool calls ran ({', '.join(map(quote, running))}); "
                "they were answered as unknown, wait for every call inside the step"
            )

    def close(self, cause: BaseException | None) -> list[str]:
        """Answer what is unanswered and write `step/end`; called when the step or its turn is left.

        Args:
            cause: The exception on its way, or None.

        Returns:
            The ids of calls that had been entered and had no result.

        Raises:
            TurnlogError: An event could not be appended, on the normal path only; the step stays open.
        """
        running = []
        for call_id in self.session.pending_calls:
            call = self._calls.get(call_id)
            if call is not None:
                running.append(call_id)
                call.abandon(cause)
            else:
                answer = partial(self._answer, call_id)
                write_closing(answer, cause, f"the result of tool call {quote(call_id)}")
        data = {"turn": self.turn_number, "step": self.number}
        write_closing(lambda: self.session.append("step/end", data), cause, "step/end")
        self._open = False
        return running

    def _answer(self, call_id: str) -> None:
        started = self.session.is_recorded(call_id)
        data = unanswered_payload(self.turn_number, self.number, call_id, started=started)
        sources = [self._recorded_seq(call_id)] if started else None
        self.session.append("tool/result", data, surface_op="append", source_event_seqs=sources)

    def _recorded_seq(self, call_id: str) -> int:
        # For a call that was appended by hand; a recorder knows the seq of its own.
        return next(
            row.first_seq
            for row in reversed(self.session.log.rows)
            if isinstance(row, EventRow)
            and row.type == "tool/call"
            and facts_of(row.type, row.event().data).call_id == call_id
        )

    def _check_open(self, call: str) -> None:
        if not self._open:
            where = "before it is entered with async with" if not self.number else "after it was left"
            raise UsageError(
                f"step.{call} was called {where}; use it inside `async with turn.step() as step`"
            )
