"""One tool call: recorded and durable before its body runs, answered exactly once whatever the body does.

Owns the call's own states. Calls that are never entered, and calls still running when their step is left, are
answered by the step.
"""

from __future__ import annotations

from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any

from turnlog.errors import UsageError, quote
from turnlog.persistence.recorder import (
    failed_payload,
    result_blocks,
    result_payload,
    unanswered_payload,
    undispatched_payload,
    write_closing,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnlog.events.envelope import SessionEvent
    from turnlog.events.lossless import JsonValue
    from turnlog.persistence.step_recorder import StepRecorder


class _State(Enum):
    NEW = "not entered"
    ENTERING = "being entered"
    RUNNING = "running"
    ANSWERED = "answered"


class ToolRecorder:
    """`async with step.tool(call_id, name, arguments) as tool`: the body runs only once its call is durable.

    Concurrency: calls of one step may run side by side, each in its own task.
    """

    __slots__ = ("_arguments", "_seq", "_state", "_step", "call_id", "name")

    def __init__(self, step: StepRecorder, call_id: str, name: str, arguments: str) -> None:
        """Prepare to record a call; made by `step.tool`.

        Args:
            step: The open step.
            call_id: Id of the call as the model gave it.
            name: Name of the tool.
            arguments: The raw text that the model produced, possibly not valid JSON.
        """
        self._step = step
        self.call_id = call_id
        self.name = name
        self._arguments = arguments
        self._state = _State.NEW
        self._seq = -1

    @property
    def idempotency_key(self) -> str:
        """`<session id>:<seq of the tool/call>`: the same for every retry of this call and for no other call.

        Raises:
            UsageError: The call has not been entered.
        """
        if self._seq < 0:
            raise UsageError(
                f"tool call {quote(self.call_id)} has no key before it is entered with async with"
            )
        return f"{self._step.session.id}:{self._seq}"

    def result(
        self,
        content: JsonValue,
        *,
        is_error: bool | None = None,
        error: Mapping[str, str] | None = None,
        meta: JsonValue = None,
    ) -> SessionEvent:
        """Answer the call.

        Args:
            content: What the model sees: text, a list of content blocks, or a JSON value, shown as JSON text.
            is_error: Whether the call failed; by default it did if `error` is given.
            error: `{"name": ..., "code": ...}` of a failure with a stable code.
            meta: Any JSON value for the tool's own use, such as a diff for a viewer.

        Returns:
            The `tool/result` event; it is admitted, and durable with the next flush.

        Raises:
            UsageError: Not inside the call's block, or answered before.
            InvalidEventError: A part is not lossless JSON; the call is still unanswered.
        """
        if self._state is not _State.RUNNING:
            raise UsageError(self._why_no_result())
        failure = None if error is None else _checked_error(error)
        failed = failure is not None if is_error is None else is_error
        blocks = result_blocks(content)
        event = self._write(result_payload(*self._place, blocks, is_error=failed, error=failure, meta=meta))
        self._state = _State.ANSWERED
        return event

    async def __aenter__(self) -> ToolRecorder:
        if self._state is not _State.NEW:
            raise UsageError(f"tool call {quote(self.call_id)} was entered before; each call runs once")
        self._step.check_call(self.call_id)
        session = self._step.session
        data = {
            "turn": self._step.turn_number,
            "step": self._step.number,
            "callId": self.call_id,
            "name": self.name,
            "arguments": self._arguments,
        }
        self._seq = session.append("tool/call", data).seq
        self._state = _State.ENTERING
        self._step.add_call(self)
        try:
            await session.flush()
        except BaseException as cause:
            # D3: the body does not run. What stopped it, a failed flush or a cancellation, goes on.
            if self._state is _State.ENTERING:
                self._settle(undispatched_payload(*self._place), cause)
            raise
        if self._state is not _State.ENTERING:
            raise UsageError(
                f"the step of tool call {quote(self.call_id)} was left before the call could run; "
                "wait for every call inside the step"
            )
        self._state = _State.RUNNING
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state is _State.ANSWERED or self.call_id not in self._step.session.pending_calls:
            return  # answered here, by its step, or by hand
        if isinstance(error, Exception):
            self._settle(failed_payload(*self._place, error), error)
        else:
            self._settle(unanswered_payload(*self._place, started=True), error)
        if error is None:
            raise UsageError(
                f"tool call {quote(self.call_id)} ended without a result and was answered as unknown; "
                "call tool.result(...) inside its block"
            )

    def abandon(self, cause: BaseException | None) -> None:
        """Answer the call because its step is left: its body did not run, or nobody knows how far it came.

        Args:
            cause: What ends the step, or None when it was simply left.

        Raises:
            TurnlogError: The result could not be appended, on the normal path only.
        """
        if self._state is _State.ENTERING:
            self._settle(undispatched_payload(*self._place), cause)
        else:
            self._settle(unanswered_payload(*self._place, started=True), cause)

    @property
    def _place(self) -> tuple[int, int, str]:
        return self._step.turn_number, self._step.number, self.call_id

    def _settle(self, data: dict[str, Any], cause: BaseException | None) -> None:
        self._state = _State.ANSWERED
        write_closing(lambda: self._write(data), cause, f"the result of tool call {quote(self.call_id)}")

    def _write(self, data: dict[str, Any]) -> SessionEvent:
        return self._step.session.append(
            "tool/result", data, surface_op="append", source_event_seqs=[self._seq]
        )

    def _why_no_result(self) -> str:
        call = f"tool call {quote(self.call_id)}"
        if self._state is _State.ANSWERED:
            return f"{call} already has its result, or its step was left; a call is answered once"
        return f"{call} is not running; call tool.result(...) inside `async with step.tool(...) as tool`"


def _checked_error(error: Mapping[str, Any]) -> dict[str, str]:
    if set(error) != {"name", "code"} or not all(
        isinstance(value, str) and value for value in error.values()
    ):
        raise UsageError('tool.result takes error={"name": "...", "code": "..."} with two non-empty texts')
    return {"name": error["name"], "code": error["code"]}
