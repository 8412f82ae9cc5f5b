"""`turnlog export` to providers, people and bundles, and `turnlog import`: options, output, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.logs import Cli, finished, interrupted, plant, snapshot
from turnlog import SessionEvent
from turnlog.testing.scripts import LogScript
from turnlog.transcripts import SHAPES, Shape, validate


@pytest.mark.parametrize("shape", SHAPES)
def test_provider_formats(cli: Cli, root: Path, tmp_path: Path, shape: Shape) -> None:
    """A request on standard output, what differs counted on standard error and listed in a file."""
    plant(root, "cut", interrupted())
    before = snapshot(root)
    found = cli("export", "cut", "--format", shape, "--sendable")
    assert found.code == 0
    request = json.loads(found.out)
    assert validate(shape, request, sendable=True) == []
    assert "from the log (" in found.err
    report = tmp_path / "report.json"
    quiet = cli("export", "cut", "--format", shape, "--report", report, "--no-reasoning", "--model", "m9")
    assert quiet.err == ""
    assert json.loads(quiet.out)["model"] == "m9"
    assert "result-made-up" in [change["rule"] for change in json.loads(report.read_text())]
    assert snapshot(root) == before


def test_limits_and_big_integers(cli: Cli, root: Path) -> None:
    """Limits are honoured, and integers beyond a double come out digit for digit."""
    script = LogScript().start().step().user("x" * 50_000).assistant("y", calls=["c"])
    raw = [event.to_dict() for event in script.events]
    raw[3]["data"]["message"]["content"][1]["arguments"] = '{"n":123456789012345678901234567890}'
    plant(root, "s", [SessionEvent.from_dict(event) for event in raw])
    shown = cli("export", "s", "--format", "anthropic", "--max-bytes", "20000", "--max-image-side", "9")
    assert len(shown.out) < 20_100
    assert "123456789012345678901234567890" in shown.out


def test_pages_and_training_data(cli: Cli, root: Path, tmp_path: Path) -> None:
    """HTML is one page, sft is one JSON line per session or turn."""
    plant(root, "s", finished(), cwd="/home/alice/app")
    out = tmp_path / "page.html"
    assert cli("export", "s", "--format", "html", "-o", out).code == 0
    assert out.read_text().startswith("<!DOCTYPE html>")
    assert "alice" not in out.read_text()
    assert "in /home/alice/app" in cli("export", "s", "--format", "markdown", "--no-redact").out
    assert len(cli("export", "s", "--format", "sft").out.splitlines()) == 1
    lines = cli("export", "s", "--format", "sft", "--by", "turn").out.splitlines()
    assert [json.loads(line)["turn"] for line in lines] == [1, 2]


def test_patterns_turn_redaction_on(cli: Cli, root: Path) -> None:
    """A pattern of one's own is enough to mark it; it cannot be given together with its opposite."""
    plant(root, "s", finished())
    found = cli("export", "s", "--format", "messages", "--redact-pattern", "Which \\w+")
    assert "[redacted:custom]" in found.out
    both = cli("export", "s", "--format", "messages", "--redact-pattern", "x", "--no-redact")
    assert both.code == 2
    assert cli("export", "s", "--format", "jsonl", "--redact-pattern", "(").code == 2


def test_bundle_goes_to_another_store(cli: Cli, root: Path, tmp_path: Path) -> None:
    """A bundle is taken into another store, again without effect, and not over another session of its id."""
    plant(root, "s", finished())
    bundle, other = tmp_path / "b.zip", f"jsonl:{tmp_path}/other"
    made = cli("export", "s", "--format", "bundle", "-o", bundle)
    assert made.code == 0
    assert "1 session and 0 images" in made.err
    assert cli("import", bundle, "--store", other).out == "s  20 events\n"
    assert cli("import", bundle, "--store", other).out == "s  was there already\n"
    told = json.loads(cli("import", bundle, "--store", other, "--json").out)
    assert [(entry["id"], entry["events"]) for entry in told] == [("s", len(finished()))]
    events = cli("events", "s").out
    assert cli("events", "s", "--store", other).out == events
    plant(tmp_path / "third", "s", LogScript().turn("another").events)
    clash = cli("import", bundle, "--store", f"jsonl:{tmp_path}/third")
    assert clash.code != 0
    assert clash.out.startswith('not taken  s  session "s" collides')


def test_import_refuses_what_is_no_bundle(cli: Cli, tmp_path: Path) -> None:
    """A file that is no bundle, and one that is not there, are one line each."""
    (tmp_path / "x.zip").write_bytes(b"nothing")
    assert cli("import", tmp_path / "x.zip").code == 2
    assert cli("import", tmp_path / "none.zip").code == 1
    assert not (tmp_path / "store").exists()
