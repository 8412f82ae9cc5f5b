"""Typed views of the 48 known payloads, by event type.

Views for readers, never a gate: `SessionEvent.view` gives None where data does not fit. Third-party types
bring their own view through `vocabulary.register_event_type`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnlog.events.payload_parts import (
    Failure,
    Message,
    RequestState,
    SeqRange,
    StreamChunk,
    TokenUsage,
    View,
)


class TurnStart(View, frozen=True):
    """`turn/start`: a turn opens."""

    turn: int


class TurnEnd(View, frozen=True):
    """`turn/end`: a turn is over, once."""

    turn: int
    reason: dict[str, Any]
    """Has a `kind`; `interrupted` is written by repair only."""


class Step(View, frozen=True):
    """`step/start` and `step/end`: one model call with the tools it caused."""

    turn: int
    step: int


class AssistantChunk(View, frozen=True):
    """`assistant/chunk`: one piece of a streamed answer."""

    turn: int
    step: int
    chunk: StreamChunk


class AssistantMessage(View, frozen=True):
    """`assistant/message`: the answer of one step."""

    turn: int
    step: int
    message: Message
    usage: TokenUsage | None = None
    interrupted: bool | None = None


class ToolCall(View, frozen=True):
    """`tool/call`: a tool is about to run."""

    turn: int
    step: int
    call_id: str
    name: str
    arguments: str
    """The raw text the model produced, possibly not JSON."""


class ToolResult(View, frozen=True):
    """`tool/result`: the answer to one call."""

    turn: int
    step: int
    message: Message
    error: dict[str, Any] | None = None
    meta: Any = None


class TodoWrite(View, frozen=True):
    """`todo/write`: the whole list; the last write counts."""

    todos: list[dict[str, Any]]


class RequestHeader(View, frozen=True):
    """`request/header`: the complete request state without history."""

    header: RequestState
    reason: str


class RequestContext(View, frozen=True):
    """`request/context`: which model reads, and how much fits."""

    provider: str
    model: str
    context_window: int | None = None


class SessionEndSeed(View, frozen=True):
    """`session/end-seed`: what follows is live."""


class InboxSpliced(View, frozen=True):
    """`agent/inbox/spliced`: queued input was added, claimed or dropped."""

    target: str
    start: int
    inserted: list[Message]
    removed_count: int | None = None
    outcome: str | None = None


class AgentPresetSelected(View, frozen=True):
    """`agent-preset/selected`: outranks the preset of the header."""

    agent_preset: str


class ApprovalAsked(View, frozen=True):
    """`approval/asked`: a person is asked."""

    id: str
    tool_name: str
    call_id: str | None = None
    reason: str | None = None


class ApprovalDecided(View, frozen=True):
    """`approval/decided`: the answer to one question."""

    id: str
    outcome: str


class ApprovalPolicy(View, frozen=True):
    """`approval/policy`: whether people are asked at all."""

    policy: str
    source: str | None = None


class CommandRun(View, frozen=True):
    """`command/run`: a command of the user begins."""

    command_id: str
    name: str
    source: dict[str, Any]
    args: str | None = None


class CommandDone(View, frozen=True):
    """`command/done`: a command of the user is over."""

    command_id: str
    kind: str
    text: str | None = None
    source_event_seq: int | None = None


class CompactionStart(View, frozen=True):
    """`compaction/start`: history is about to be shortened."""

    compaction_id: str
    turn: int | None
    source_command_id: str | None = None


class CompactionEnd(View, frozen=True):
    """`compaction/end`: done, or failed with an error."""

    compaction_id: str
    turn: int | None
    source_command_id: str | None = None
    error: Any = None


class CompactionSummary(View, frozen=True):
    """`compaction/summary`: the text that replaces a range, and its price."""

    compaction_id: str
    summary: list[dict[str, Any]]
    shadowed_range: SeqRange
    shadowed_seqs: list[int]
    shadowed_token_count: int
    provider: str
    model: str
    source_command_id: str | None = None
    max_tokens: int | None = None
    usage: TokenUsage | None = None
    raw_output: list[dict[str, Any]] | None = None
    llm_stream_call: bool | None = None


class CompactionPrune(View, frozen=True):
    """`compaction/prune`: a result is about to be shortened."""

    shadowed_range: SeqRange
    shadowed_seqs: list[int]
    shadowed_token_count: int


class FeedbackRecord(View, frozen=True):
    """`feedback/record`: what a person thought."""

    text: str


class GoalChange(View, frozen=True):
    """`goal/change`: a goal is created, changed or cleared."""

    kind: str
    version: int
    operation: str
    goal: dict[str, Any] | None = None
    rounds_started: int | None = None
    created_at: int | None = None
    updated_at: int | None = None
    cleared: dict[str, Any] | None = None
    cleared_at: int | None = None


class HookInvoked(View, frozen=True):
    """`hook/invoked`: a hook is about to run."""

    turn: int
    point: str
    dialect: str
    handler_id: str
    matcher: str | None = None


class HookResult(View, frozen=True):
    """`hook/result`: what a hook decided."""

    turn: int
    point: str
    handler_id: str
    decision: str
    duration_ms: float
    exit_code: int | None = None
    stderr_summary: str | None = None


class LlmRetry(View, frozen=True):
    """`llm/retry`: a model call failed and will be tried again."""

    retry_id: str
    turn: int
    step: int
    provider: str
    mode: str
    policy_key: str
    retry: int
    delay_ms: float
    failure: Failure
    max_retries: int | None = None


class LlmRetryStarted(View, frozen=True):
    """`llm/retry-started`: the next try begins."""

    retry_id: str
    turn: int
    step: int
    retry: int


class PermissionPreset(View, frozen=True):
    """`permission/preset`: which permissions apply."""

    preset: str


class PlanMode(View, frozen=True):
    """`plan/mode`: planning only, or not."""

    active: bool


class SandboxMode(View, frozen=True):
    """`sandbox/mode`: what tools may touch."""

    mode: str
    source: str | None = None


class ScheduleChange(View, frozen=True):
    """`schedule/change`: a timed prompt is created, deleted or dispatched."""

    version: int
    operation: str
    schedule: dict[str, Any] | None = None
    id: str | None = None
    accepted_at: str | None = None


class SessionTitle(View, frozen=True):
    """`session/title`: the title and who gave it."""

    title: str
    message_seqs: list[int]
    source: dict[str, Any]


class TitleRequest(View, frozen=True):
    """`session/title-llm-request`: the model call that makes a title."""

    title_provider: str
    message_seqs: list[int]
    route: dict[str, Any]
    system: str
    messages: list[Message]
    max_tokens: int


class SubagentDescriptor(View, frozen=True):
    """`subagent/descriptor`: what a delegated session is for."""

    version: int
    mode: str
    provider: str
    label: str | None = None
    agent_provider: str | None = None
    agent_model: str | None = None
    persona: Any = None
    tool_filter: dict[str, Any] | None = None


class TeamMember(View, frozen=True):
    """`team/member`: a member as it is now."""

    version: int
    team_id: str
    member: dict[str, Any]


class TeamTask(View, frozen=True):
    """`team/task`: a task as it is now."""

    version: int
    team_id: str
    task: dict[str, Any]


class TeamMessageQueued(View, frozen=True):
    """`team/message/queued`: a message between members."""

    version: int
    team_id: str
    message: dict[str, Any]


class TeamMessageDelivered(View, frozen=True):
    """`team/message/delivered`: the message arrived."""

    version: int
    team_id: str
    message_id: str
    target_id: str


class CodeDispatchStart(View, frozen=True):
    """`tool/code-dispatch-start`: code calls a tool."""

    root_call_id: str
    parent_call_id: str
    sub_call_id: str
    name: str
    arguments: Any


class CodeDispatch(View, frozen=True):
    """`tool/code-dispatch`: the answer to a call from code."""

    root_call_id: str
    parent_call_id: str
    sub_call_id: str
    name: str
    arguments: Any
    is_error: bool
    content: list[dict[str, Any]]


class WorkflowRunStart(View, frozen=True):
    """`tool-workflow/run-start`: a workflow begins."""

    run_id: str
    name: str


class WorkflowAgentStart(View, frozen=True):
    """`tool-workflow/agent-start`: an agent of a workflow begins."""

    run_id: str
    seq: int
    label: str
    child_id: str
    phase: str | None = None


class WorkflowAgentEnd(View, frozen=True):
    """`tool-workflow/agent-end`: an agent of a workflow is over."""

    run_id: str
    seq: int
    outcome: str


class WorkflowRunEnd(View, frozen=True):
    """`tool-workflow/run-end`: a workflow is over."""

    run_id: str
    stop_reason: str


class SearchRequest(View, frozen=True):
    """`web/deepseek-search-llm-request`: the request behind a web search, without secrets."""

    endpoint: str
    api_version: str
    body: dict[str, Any]


PAYLOADS: dict[str, type[msgspec.Struct]] = {
    "agent-preset/selected": AgentPresetSelected,
    "agent/inbox/spliced": InboxSpliced,
    "approval/asked": ApprovalAsked,
    "approval/decided": ApprovalDecided,
    "approval/policy": ApprovalPolicy,
    "assistant/chunk": AssistantChunk,
    "assistant/message": AssistantMessage,
    "command/done": CommandDone,
    "command/run": CommandRun,
    "compaction/end": CompactionEnd,
    "compaction/prune": CompactionPrune,
    "compaction/start": CompactionStart,
    "compaction/summary": CompactionSummary,
    "feedback/record": FeedbackRecord,
    "goal/change": GoalChange,
    "hook/invoked": HookInvoked,
    "hook/result": HookResult,
    "llm/retry": LlmRetry,
    "llm/retry-started": LlmRetryStarted,
    "permission/preset": PermissionPreset,
    "plan/mode": PlanMode,
    "request/context": RequestContext,
    "request/header": RequestHeader,
    "sandbox/mode": SandboxMode,
    "schedule/change": ScheduleChange,
    "session/end-seed": SessionEndSeed,
    "session/title": SessionTitle,
    "session/title-llm-request": TitleRequest,
    "step/end": Step,
    "step/start": Step,
    "subagent/descriptor": SubagentDescriptor,
    "team/member": TeamMember,
    "team/message/delivered": TeamMessageDelivered,
    "team/message/queued": TeamMessageQueued,
    "team/task": TeamTask,
    "todo/write": TodoWrite,
    "tool-workflow/agent-end": WorkflowAgentEnd,
    "tool-workflow/agent-start": WorkflowAgentStart,
    "tool-workflow/run-end": WorkflowRunEnd,
    "tool-workflow/run-start": WorkflowRunStart,
    "tool/call": ToolCall,
    "tool/code-dispatch": CodeDispatch,
    "tool/code-dispatch-start": CodeDispatchStart,
    "tool/result": ToolResult,
    "turn/end": TurnEnd,
    "turn/start": TurnStart,
    "user/message": Message,
    "web/deepseek-search-llm-request": SearchRequest,
}
"""The view class of each known type."""
