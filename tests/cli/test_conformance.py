"""The recorded logs of the original through the command line: the same events and closers, no crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.logs import Cli, snapshot
from tests.corpus.paths import DATA

FILES = sorted(
    path
    for folder in ("plain", "zstd")
    for path in (DATA / "jsonl" / folder).iterdir()
    if ".expected" not in path.name
)


def place(root: Path, file: Path) -> dict[str, Any]:
    """Put a recorded log where the original had it, and return what the original said of it."""
    name = file.name.removesuffix(".zstd").removesuffix(".jsonl")
    expected: dict[str, Any] = json.loads((file.parent / f"{name}.expected.json").read_text(encoding="utf-8"))
    target = root / expected["relpath"]
    target.parent.mkdir(parents=True)
    target.write_bytes(file.read_bytes())
    return expected


def test_there_are_recorded_logs() -> None:
    """An empty folder would make the tests below pass without testing anything."""
    assert len(FILES) > 40


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.name.split('.')[0]}")
def test_every_reader_on_a_recorded_log(cli: Cli, root: Path, file: Path) -> None:
    """`inspect` agrees with the original, the other readers read, and nothing is written."""
    expected = place(root, file)
    before = snapshot(root)
    (entry,) = json.loads(cli("list", "--json").out)
    path = next(root.rglob("session.jsonl*"))
    found = cli("inspect", path, "--json")
    value = json.loads(found.out)
    assert (found.code, found.err) == (0, "")
    assert (value["header"], value["event_count"]) == (expected["header"], expected["stored_count"])
    assert value["closers"] == [closer["type"] for closer in expected["closers"]]
    assert value["turns"] == expected["types"].get("turn/start", 0)
    assert entry["status"] in (value["status"], "unknown")
    for arguments in (
        ["show", path],
        ["show", path, "--json"],
        ["show", path, "--events", "--full"],
        ["show", path, "--messages"],
        ["events", path],
        ["tail", path],
        ["stats", path],
        ["export", path, "--format", "messages"],
        ["export", path, "--format", "markdown"],
        ["export", path, "--format", "jsonl"],
    ):
        result = cli(*arguments)
        assert (result.code, result.err) == (0, ""), arguments
    assert snapshot(root) == before
