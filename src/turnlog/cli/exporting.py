"""`turnlog export`: a session in another form, for providers, people, training or safekeeping.

Owns the options and which form is made of which part of a session; the forms are those of
`turnlog.transcripts`. Never writes to the store.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import click

import turnlog
from turnlog import transcripts
from turnlog.cli.options import Settings, pass_settings, run, shared_options
from turnlog.cli.progress import all_events
from turnlog.cli.targets import Target, opened
from turnlog.cli.terminal import notice
from turnlog.errors import BackendError, UsageError
from turnlog.events.header import header_line
from turnlog.persistence.service import SessionInspection
from turnlog.transcripts import text
from turnlog.transcripts.images import attachment_ids

FOR_PEOPLE: Final = ("markdown", "html", "sft")
"""Forms that are made to be handed on: secrets are marked unless somebody says otherwise."""

FORMATS: Final = (*transcripts.SHAPES, "messages", "jsonl", "markdown", "html", "sft", "bundle")

_REDACTED_NOTICE: Final = "Secrets are marked in this file; it is not a log that can be resumed."


@dataclass(frozen=True, slots=True)
class Job:
    """One export as it was asked for."""

    form: str
    redactor: transcripts.Redactor | None
    options: dict[str, Any]
    """Options of `transcripts.export`."""
    by: str
    report: Path | None


@click.command()
@click.argument("session", metavar="ID")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write to FILE, which appears whole or not at all; standard output when not given or -.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what was changed or left out, and why, to FILE as JSON (provider formats).",
)
@click.option(
    "--redact/--no-redact",
    default=None,
    help="Mark keys, tokens, passwords and home folders; on by default for markdown, html and sft.",
)
@click.option(
    "--redact-pattern", "patterns", multiple=True, metavar="REGEX", help="Mark this, too; may be repeated."
)
@click.option("--provider", metavar="NAME", help="Whom a provider format is for; decides about reasoning.")
@click.option("--model", metavar="NAME", help="The model it is for.")
@click.option("--no-reasoning", is_flag=True, help="Leave all reasoning out of a provider format.")
@click.option("--sendable", is_flag=True, help="End with a message of the user, so that it can be sent.")
@click.option("--max-bytes", type=click.IntRange(1), metavar="N", help="Most bytes of a request.")
@click.option("--max-image-bytes", type=click.IntRange(1), metavar="N", help="Most bytes of one image.")
@click.option("--max-image-side", type=click.IntRange(1), metavar="N", help="Most pixels of its longer side.")
@click.option(
    "--by", type=click.Choice(["session", "turn"]), default="session", help="What a line of sft is about."
)
@shared_options()
@pass_settings
def export(settings: Settings, /, session: str, form: str, output: Path | None, **given: Any) -> None:
    """Write a session in another form.

    \b
    anthropic, openai-chat, openai-responses, gemini: a request that the provider accepts,
      as one JSON object. An interrupted turn is closed in it.
    messages: the messages that the model sees next, as one JSON array.
    jsonl: the header and the stored events, one JSON line each, readable by turnlog and dsh.
    markdown, html: the conversation for people; html is one file without scripts.
    sft: chats for training, one JSON line each, with a mask for what the model produced.
    bundle: a zip file with log, sub-agent sessions, images and digests (turnlog import).
    """
    run(_export(settings, session, _job(form, given), output))


def _job(form: str, given: dict[str, Any]) -> Job:
    patterns, wanted = given["patterns"], given["redact"]
    is_on = (form in FOR_PEOPLE or bool(patterns)) if wanted is None else wanted
    if patterns and wanted is False:
        raise UsageError("--redact-pattern and --no-redact contradict each other; give one of them")
    redactor = transcripts.Redactor(patterns) if is_on else None
    limits = transcripts.Limits(
        max_bytes=given["max_bytes"],
        max_image_bytes=given["max_image_bytes"],
        max_image_side=given["max_image_side"],
    )
    options = {
        "limits": limits,
        "redact": redactor,
        "target_provider": given["provider"],
        "target_model": given["model"],
        "reasoning": "drop" if given["no_reasoning"] else "keep",
        "sendable": given["sendable"],
    }
    return Job(form, redactor, options, given["by"], given["report"])


async def _export(settings: Settings, session: str, job: Job, output: Path | None) -> None:
    async with opened(settings, session) as target:
        if job.form == "bundle":
            await _bundle(settings, target, job, output)
            return
        with Output(output) as out:
            async for piece in _PIECES.get(job.form, _provider)(settings, target, job):
                out.stream.write(piece)


_TEXT: Final = {"mode": "w", "encoding": "utf-8", "newline": ""}


class Output:
    """Standard output, or a file that is written beside its place and renamed when it is whole.

    Args:
        path: The file; None and `-` mean standard output.
        binary: Whether bytes are written.
    """

    def __init__(self, path: Path | None, *, binary: bool = False) -> None:
        self._path = None if path is None or str(path) == "-" else path
        self._partial: Path | None = None
        self._how: dict[str, Any] = {"mode": "wb"} if binary else dict(_TEXT)
        self.stream: IO[Any] = sys.stdout.buffer if binary else sys.stdout

    def __enter__(self) -> Self:
        path = self._path
        if path is None:
            return self
        if path.exists() and not path.is_file():
            # A pipe or a device is written in place; there is nothing to replace.
            self.stream = path.open(**self._how)
            return self
        self._partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            descriptor = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            self._partial = None
            raise OSError(error.errno, error.strerror, str(path)) from error  # the name that people gave
        self.stream = os.fdopen(descriptor, **self._how)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._path is None:
            return
        try:
            self.stream.close()
            if self._partial is not None and error is None:
                self._partial.replace(self._path)
        finally:
            if self._partial is not None:
                self._partial.unlink(missing_ok=True)


async def _provider(settings: Settings, target: Target, job: Job) -> AsyncIterator[str]:
    found = await target.store.inspect(target.session_id)
    images = await _images(target, found)
    shape: Any = job.form
    exported = transcripts.export(found, shape, images=images, **job.options)
    if job.report is not None:
        with Output(job.report) as out:
            out.stream.write(text.json_line([change.to_dict() for change in exported.report]) + "\n")
    elif exported.report and not settings.quiet:
        rules = ", ".join(dict.fromkeys(change.rule for change in exported.report))
        differences = text.count(len(exported.report), "difference")
        notice(f"{differences} from the log ({rules}); --report FILE lists them")
    yield _json(exported.request) + "\n"


def _json(value: object) -> str:
    # Not the log's own form: arguments may hold integers that a log cannot.
    return text.json_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


async def _images(target: Target, found: SessionInspection) -> dict[str, bytes]:
    """Read the images that the messages name; those that are not there are left out of the export."""
    images: dict[str, bytes] = {}
    for message in turnlog.derive_messages(found.events):
        for attachment_id in attachment_ids(message):
            if attachment_id not in images:
                try:
                    images[attachment_id] = await target.store.attachments.get(attachment_id)
                except (BackendError, UsageError):
                    continue
    return images


async def _messages(settings: Settings, target: Target, job: Job) -> AsyncIterator[str]:
    found = await target.store.inspect(target.session_id)
    messages = turnlog.derive_messages(found.events)
    if job.redactor is not None:
        messages = [transcripts.redacted_message(message, job.redactor) for message in messages]
    yield text.json_line(messages) + "\n"


async def _jsonl(settings: Settings, target: Target, job: Job) -> AsyncIterator[str]:
    meta = (await target.store.read_from(target.session_id, 0, limit=0)).meta
    events = all_events(settings, target)
    if job.redactor is not None:
        async for line in transcripts.redacted_lines(meta, events, job.redactor):
            yield text.json_text(line) + "\n"
        return
    yield text.json_text(header_line(meta).decode("utf-8", "surrogatepass"))
    async for event in events:
        yield text.json_text(event.line.decode("utf-8")) + "\n"


async def _conversation(settings: Settings, target: Target) -> tuple[transcripts.Conversation, list[str]]:
    conversation = transcripts.Conversation()
    async for event in all_events(settings, target):
        conversation.feed(event)
    conversation.finish()
    header = (await target.store.read_from(target.session_id, 0, limit=0)).meta
    facts = [f"started {text.clock(header.created_at)} UTC"]
    if header.cwd is not None:
        facts.append(f"in {header.cwd}")
    return conversation, facts


async def _markdown(settings: Settings, target: Target, job: Job) -> AsyncIterator[str]:
    conversation, facts = await _conversation(settings, target)
    if job.redactor is not None:
        facts.append(_REDACTED_NOTICE)
    for piece in transcripts.document(
        conversation, session_id=target.session_id, facts=facts, redactor=job.redactor
    ):
        yield piece


async def _html(settings: Settings, target: Target, job: Job) -> AsyncIterator[str]:
    conversation, facts = await _conversation(settings, target)
    images = await _images(target, await target.store.inspect(target.session_id))
    for piece in transcripts.page(
        conversation,
        session_id=target.session_id,
        facts=facts,
        notice=None if job.redactor is None else _REDACTED_NOTICE,
        redactor=job.redactor,
        images=images,
    ):
        yield piece


async def _sft(settings: Settings, target: Target, job: Job) -> AsyncIterator[str]:
    found = await target.store.inspect(target.session_id)
    images = await _images(target, found)
    by: Any = job.by
    for example in transcripts.training_examples(found, by=by, images=images, **job.options):
        yield _json(example) + "\n"


async def _bundle(settings: Settings, target: Target, job: Job, output: Path | None) -> None:
    if (output is None or str(output) == "-") and sys.stdout.isatty():
        raise UsageError("a bundle is a zip file, not something to print; name a file with -o")
    with Output(output, binary=True) as out:
        bundled = await transcripts.write_bundle(
            target.store, target.session_id, out.stream, redactor=job.redactor
        )
    if not settings.quiet:
        missing = f", {text.count(len(bundled.missing), 'image')} not in the store" if bundled.missing else ""
        held = text.count(len(bundled.sessions), "session")
        notice(f"bundled {held} and {text.count(len(bundled.attachments), 'image')}{missing}")


_PIECES: Final[dict[str, Callable[[Settings, Target, Job], AsyncIterator[str]]]] = {
    "messages": _messages,
    "jsonl": _jsonl,
    "markdown": _markdown,
    "html": _html,
    "sft": _sft,
}
