"""The error tree: stable codes, typed arguments, messages that say what to do."""

from __future__ import annotations

import json

import pytest

from turnlog import errors
from turnlog.errors import ClaimOwner, TurnlogError
from turnlog.events.envelope import SessionEvent

OWNER = ClaimOwner(pid=7, host="box", since=1700000000000, boot_id="b")
EVENT = SessionEvent.build("turn/start", 4, 1, {"turn": 1})

SAMPLES: list[tuple[TurnlogError, str, bool, list[str]]] = [
    (errors.UsageError("pick one"), "usage", False, ["pick one"]),
    (errors.LogError(session_id="s"), "log-error", False, ["cannot be used"]),
    (errors.SessionNotFoundError(session_id="s"), "session-not-found", False, ['"s"', "list the store"]),
    (errors.SessionExistsError(session_id="s", where="live"), "session-exists", False, ["live", "resume it"]),
    (
        errors.SessionBusyError(session_id="s", owner=OWNER),
        "session-busy",
        True,
        ["process 7", '"box"', "2023-11-14"],
    ),
    (
        errors.SessionBusyError(session_id="s"),
        "session-busy",
        True,
        ["another writer", "take the session over"],
    ),
    (
        errors.WriterFencedError(session_id="s", pending=[EVENT]),
        "writer-fenced",
        False,
        [".pending", "resume"],
    ),
    (
        errors.SessionCollisionError(session_id="s", reason="other cwd"),
        "session-collision",
        False,
        ["other cwd"],
    ),
    (
        errors.UnexpectedSeqError(session_id="s", expected=4, actual=6),
        "unexpected-seq",
        False,
        ["seq 4", "got 6"],
    ),
    (
        errors.UnexpectedSeqError(session_id=None, expected=4, actual=6, index=2),
        "unexpected-seq",
        False,
        ["this session", "index 2"],
    ),
    (errors.InvalidEventError(field="data.x", reason="is bad"), "invalid-event", False, ["data.x is bad"]),
    (
        errors.InvalidEventError(field="seq", reason="is bad", index=3, type="a/b"),
        "invalid-event",
        False,
        ['"a/b" event', "index 3"],
    ),
    (
        errors.InvariantError(rule="T1", reason="no open turn"),
        "invariant",
        False,
        ["rule T1", "missing event"],
    ),
    (
        errors.InvalidSessionIdError(session_id="", reason="it is empty"),
        "invalid-session-id",
        False,
        ["empty"],
    ),
    (
        errors.CorruptLogError(
            session_id="s", reason="bad", line=3, offset=90, seq=2, kind="unparsable", path="/x"
        ),
        "corrupt-log",
        False,
        ["line 3", "byte 90", "seq 2", '"/x"', "salvage"],
    ),
    (errors.CorruptLogError(session_id="s", reason="bad"), "corrupt-log", False, ["bad; nothing was cut"]),
    (
        errors.UnsupportedFormatError(session_id="s", found=7, supported=0, direction="newer", path="/x"),
        "unsupported-format",
        False,
        ['"7"', "upgrade"],
    ),
    (
        errors.UnsupportedFormatError(session_id="s", found=-1, supported=0, direction="older"),
        "unsupported-format",
        False,
        ["older release"],
    ),
    (
        errors.UnsupportedFormatError(
            session_id="s", found="a/b", supported="known", direction="unknown-type", seq=5
        ),
        "unsupported-format",
        False,
        ['"a/b"', "seq 5", "register"],
    ),
    (
        errors.UnsupportedFormatError(
            session_id="s", found="a/b", supported="known", direction="unknown-type"
        ),
        "unsupported-format",
        False,
        ['"a/b" that'],
    ),
    (errors.ForkError(session_id="s", reason="turn 2 is open", kind="open-turn"), "fork", False, ["turn 2"]),
    (
        errors.BackendError(backend="jsonl", reason="no space", path="/x"),
        "backend-error",
        False,
        ["jsonl", "/x"],
    ),
    (
        errors.BackendUnavailableError(backend="pg", reason="down"),
        "backend-unavailable",
        True,
        ["pg", "down"],
    ),
    (errors.UndurableError(pending=3), "undurable", True, ["3 events", "next flush"]),
    (errors.UndurableError(pending=3, reason="disk full"), "undurable", True, ["disk full"]),
    (
        errors.BackpressureError(session_id="s", pending_bytes=70, budget=64),
        "backpressure",
        True,
        ["70 bytes", "budget of 64", "drain"],
    ),
    (errors.ModelError("no", provider="acme"), "model-error", False, ["no"]),
    (errors.ModelUnavailableError("busy"), "model-unavailable", True, ["busy"]),
    (errors.ModelRejectedError("no credit"), "model-rejected", False, ["no credit"]),
    (errors.ModelMalformedError("not JSON"), "model-malformed", False, ["not JSON"]),
    (errors.ToolError("crashed", name="shell"), "tool-error", False, ["crashed"]),
]


@pytest.mark.parametrize(("error", "code", "retryable", "said"), SAMPLES)
def test_each_error_says_what_and_what_to_do(
    error: TurnlogError, code: str, retryable: bool, said: list[str]
) -> None:
    """Code and retryability are stable, and the message holds the typed arguments."""
    assert (error.code, error.retryable) == (code, retryable)
    for part in said:
        assert part in str(error)


@pytest.mark.parametrize("error", [sample[0] for sample in SAMPLES])
def test_details_are_json(error: TurnlogError) -> None:
    """`details` gives JSON values only, without absent ones."""
    details = error.details()
    assert json.loads(json.dumps(details)) == details
    assert None not in details.values()


def test_every_class_of_the_tree_has_its_own_code() -> None:
    """Two classes never share a code, so programs can tell them apart."""
    found: list[type[TurnlogError]] = [TurnlogError]
    for cls in found:
        found.extend(cls.__subclasses__())
    codes = [cls.code for cls in found if cls.__module__ == "turnlog.errors"]
    assert len(codes) == len(set(codes)) == 24


def test_details_show_the_owner_and_count_the_pending_events() -> None:
    """A claim's owner appears as an object, handed-back events as their number."""
    busy = errors.SessionBusyError(session_id="s", owner=OWNER).details()
    assert busy["owner"] == {"pid": 7, "host": "box", "since": 1700000000000, "boot_id": "b"}
    assert errors.WriterFencedError(session_id="s", pending=[EVENT]).details()["pending"] == 1


def test_details_of_other_objects_are_text() -> None:
    """A typed argument that JSON does not know is given as text."""
    error = errors.UnsupportedFormatError(session_id="s", found={"a": 1}, supported=0, direction="newer")
    assert error.details()["found"] == "{'a': 1}"


def test_pending_events_can_be_set_later() -> None:
    """The coordinator hands the events back on an error that a backend raised."""
    error = errors.WriterFencedError(session_id="s")
    assert error.pending == ()
    error.pending = (EVENT,)
    assert error.pending == (EVENT,)


def test_quoted_text_is_one_bounded_printable_line() -> None:
    """Control characters of a stored id cannot reach a terminal through a message."""
    shown = errors.quote("a\x1b[31m\nb" + "x" * 200)
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert shown.endswith('…"')
    assert len(shown) < 120
    assert errors.quote(7) == '"7"'


@pytest.mark.parametrize(
    ("kind", "path", "begins", "says", "not_said"),
    [
        ("unparsable", "/r/s.jsonl", '"/r/s.jsonl" is damaged', "use salvage", "this session"),
        ("database", "/r/s.db", '"/r/s.db" is damaged', "restore a backup", "salvage"),
        ("duplicate", None, "this session is damaged", "given as a file", "use salvage"),
        ("bundle", "/r/b.zip", '"/r/b.zip" is damaged', "get the file again", "salvage"),
        ("entry", "/r/link", '"/r/link" is damaged', "what stands there", "salvage"),
    ],
)
def test_damage_says_what_helps(kind: str, path: str | None, begins: str, says: str, not_said: str) -> None:
    """The advice is one that works for what is damaged, and a file of many sessions is called no session."""
    message = str(errors.CorruptLogError(session_id=None, reason="bad", kind=kind, path=path))
    assert message.startswith(begins)
    assert says in message
    assert not_said not in message


def test_a_format_names_the_file_that_has_it() -> None:
    """Where no session is at fault, none is named."""
    error = errors.UnsupportedFormatError(
        session_id=None, found=1, supported=2, direction="older", path="/r/s.db"
    )
    assert str(error).startswith('"/r/s.db" has format version "1"')


def test_a_busy_session_says_since_when_in_words() -> None:
    """Milliseconds are for programs; one that is no time is shown as it is."""
    assert "since 2023-11-14 22:13:20 UTC" in str(errors.SessionBusyError(session_id="s", owner=OWNER))
    wild = ClaimOwner(pid=7, host="box", since=1 << 70)
    assert str(1 << 70) in str(errors.SessionBusyError(session_id="s", owner=wild))


def test_a_collision_says_what_its_caller_can_do() -> None:
    """The advice is the caller's where it has a better one."""
    error = errors.SessionCollisionError(session_id="s", reason="other", advice="take another store")
    assert str(error).endswith("nothing was written, take another store")
