"""One turn: its bracket, what the user says in it, and its steps one after the other.

Owns the turn's end: which reason it has, and that leaving the turn makes it durable. Steps and tool calls
close themselves or are closed from here, innermost first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from turnlog.errors import UsageError
from turnlog.persistence.recorder import ending_for, message_blocks, turn_ending, write_closing
from turnlog.persistence.step_recorder import StepRecorder
from turnlog.session.ids import new_message_id

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent
    from turnlog.persistence.live_session import LiveSession


class TurnRecorder:
    """`async with session.turn() as turn`: one request of the user, until the agent is done with it."""

    __slots__ = ("_chosen", "_open", "_step", "number", "session")

    def __init__(self, session: LiveSession) -> None:
        """Prepare a turn; made by `session.turn`.

        Args:
            session: The live session.
        """
        self.session = session
        self.number = 0
        """Number of the turn in its session, from 1; 0 before the turn is entered."""
        self._open = False
        self._step: StepRecorder | None = None
        self._chosen: dict[str, Any] | None = None

    async def __aenter__(self) -> TurnRecorder:
        if self.number:
            raise UsageError(f"turn {self.number} was entered before; make another one with session.turn()")
        self.session.enter_turn(self)
        self._open = True
        return self

    def user(
        self, content: str | Sequence[Mapping[str, Any]], *, source: Mapping[str, Any] | None = None
    ) -> SessionEvent:
        """Record a message for the model from outside it: the user's prompt or injected context.

        Args:
            content: Text, or content blocks such as text and images.
            source: Who says it; `{"kind": "user"}` by default.

        Returns:
            The `user/message` event.

        Raises:
            UsageError: The turn is not open, or the content is neither text nor blocks.
            InvalidEventError: Something is not lossless JSON.
        """
        self._check_open("user()")
        return self.session.append(
            "user/message",
            {
                "content": message_blocks(content, "turn.user()"),
                "source": {"kind": "user"} if source is None else dict(source),
                "role": "user",
                "id": new_message_id(),
            },
            surface_op="append",
        )

    def step(self) -> StepRecorder:
        """Prepare the next step; `async with` opens it.

        Returns:
            The recorder to enter.

        Raises:
            UsageError: The turn is not open, or another step of it is.
        """
        self._check_open("step()")
        return StepRecorder(self)

    def end(self, reason: str | Mapping[str, Any]) -> None:
        """Set what `turn/end` will say; it is written when the turn's block is left.

        Args:
            reason: `"completed"`, `"blocked"`, `"max-tokens"`, or an object with a `kind`, such as
                `{"kind": "aborted", "reason": {"kind": "user"}}` or `{"kind": "error", "error": {...}}`. When
                the block is left by an exception or a cancellation, only a reason of that kind is used.

        Raises:
            UsageError: The turn is not open, or the reason is none of these.
        """
        self._check_open("end()")
        self._chosen = turn_ending(reason)

    def enter_step(self, step: StepRecorder) -> None:
        """Admit a step that is being entered; called by the step itself.

        Args:
            step: The step.

        Raises:
            UsageError: The turn is not open, or another step of it is.
        """
        self._check_open("step()")
        if self._step is not None and self._step.is_open:
            raise UsageError(
                f"step {self._step.number} of turn {self.number} is still open; leave it before the next one"
            )
        self._step = step

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return  # the store was closed meanwhile, and the turn with it
        step_left_open = self.close(ending_for(error, self._chosen), error)
        await self.session.flush_on_exit(error)
        if step_left_open and error is None:
            raise UsageError(
                f"turn {self.number} was left while a step was open; leave every step inside its turn"
            )

    def close(self, reason: Mapping[str, Any], cause: BaseException | None) -> bool:
        """Close an open step and write `turn/end`; called when the turn is left or the session is closed.

        Args:
            reason: What `turn/end` says.
            cause: The exception on its way, or None.

        Returns:
            Whether a step was open.

        Raises:
            TurnlogError: An event could not be appended, on the normal path only; the turn stays open.
        """
        step = self._step
        step_open = step is not None and step.is_open
        if step is not None and step_open:
            step.close(cause)
        data = {"turn": self.number, "reason": dict(reason)}
        write_closing(lambda: self.session.append("turn/end", data), cause, "turn/end")
        self._open = False
        self.session.leave_turn()
        return step_open

    def _check_open(self, call: str) -> None:
        if not self._open:
            where = "before it is entered with async with" if not self.number else "after it was left"
            raise UsageError(
                f"turn.{call} was called {where}; use it inside `async with session.turn() as turn`"
            )
