"""`turnlog verify`: verdicts for people and programs, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.logs import Cli, finished, interrupted, plant, snapshot
from turnlog import SessionEvent
from turnlog.testing.scripts import LogScript


def spoiled() -> bytes:
    """Return the body of a good log in which the third row is none."""
    rows = [event.line for event in finished()]
    rows[2] = b"#" + rows[2][1:]
    return b"".join(row + b"\n" for row in rows)


def test_good_logs(cli: Cli, root: Path) -> None:
    """Every readable log is good, an interrupted and a torn one, too; nothing is written (R3)."""
    plant(root, "good", finished(), encoding="zstd")
    plant(root, "cut", interrupted(), encoding="zstd")
    plant(root, "torn", finished(), encoding="zstd", tail=b"\x28\xb5\x2f\xfd\x00")
    before = snapshot(root)
    result = cli("verify", "--all", "--json")
    found = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 0
    assert {v["id"]: v["status"] for v in found} == {"good": "ok", "cut": "interrupted", "torn": "torn"}
    assert [f["kind"] for v in found for f in v["findings"]] == ["torn"]
    shown = cli("verify", "--all")
    assert shown.code == 0
    assert "3 sessions checked, 0 damaged or not readable here" in shown.out
    assert cli("verify", "good", "cut").code == 0
    assert snapshot(root) == before


def test_damage_is_exit_3(cli: Cli, root: Path) -> None:
    """Line, byte, what is missing, and that salvage helps."""
    path = plant(root, "bad", [], tail=spoiled())
    plant(root, "good", finished())
    offset = path.read_bytes().index(b"\n#") + 1
    result = cli("verify", "bad")
    assert result.code == 3
    assert f"unparsable at line 3, byte {offset:,}" in result.out
    assert "1 event certainly missing; turnlog salvage saves the others" in result.out
    value = json.loads(cli("verify", "bad", "--json").out)
    assert (value["status"], value["missing"]) == ("corrupt", [{"from": 2, "to": 2}])
    assert (value["findings"][0]["offset"], value["findings"][0]["severity"]) == (offset, "damage")
    everything = cli("verify", "--all")
    assert everything.code == 3
    assert "2 sessions checked, 1 damaged or not readable here" in everything.out


def test_an_unknown_format_is_exit_4_and_damage_wins(cli: Cli, root: Path) -> None:
    """Of several outcomes the gravest one is the exit code."""
    needed = SessionEvent.from_dict({"type": "acme/needed", "seq": 0, "time": 1, "data": {}})
    plant(root, "new", [needed])
    assert cli("verify", "new").code == 4
    plant(root, "bad", [], tail=spoiled())
    assert cli("verify", "--all").code == 3
    assert cli("verify", "bad", "new").code == 3


def test_a_broken_order_is_no_failure(cli: Cli, root: Path) -> None:
    """L4: what loads is good; the broken rule is named."""
    plant(root, "odd", LogScript().start().start().events)
    result = cli("verify", "odd")
    assert result.code == 0
    assert "turn-not-nested at seq 1" in result.out


def test_many_findings_are_cut_for_people(cli: Cli, root: Path) -> None:
    """Twenty findings and the number of the others; programs get all."""
    plant(root, "odd", [SessionEvent.from_dict({**e.to_dict(), "seq": i}) for i, e in _starts(30)])
    shown = cli("verify", "odd")
    assert shown.out.count("turn-not-nested") == 20
    assert "… 9 more findings" in shown.out
    assert len(json.loads(cli("verify", "odd", "--json").out)["findings"]) == 29


def _starts(count: int) -> list[tuple[int, SessionEvent]]:
    script = LogScript()
    for _ in range(count):
        script.start()
    return list(enumerate(script.events))


def test_a_file_from_elsewhere(cli: Cli, root: Path, tmp_path: Path) -> None:
    """A log outside of any root is verified, and nothing is written beside it."""
    path = plant(root, "s", finished())
    copy = tmp_path / "mail" / "copy.jsonl"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    assert cli("verify", copy).code == 0
    assert [entry.name for entry in copy.parent.iterdir()] == ["copy.jsonl"]


@pytest.mark.parametrize("arguments", [[], ["x", "--all"]])
def test_ids_or_all(cli: Cli, arguments: list[str]) -> None:
    """Either ids or the whole store."""
    assert cli("verify", *arguments).code == 2


def test_an_unknown_id(cli: Cli) -> None:
    """Nothing has this id."""
    assert cli("verify", "nobody").code == 6
