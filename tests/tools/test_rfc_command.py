"""`tools/rfc`: records are made, moved, archived and confirmed so that the gates stay green."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.tools import seeded_records as seeds
from tests.tools.trees import plant, record
from tools.gates import verify_md_links
from tools.gates.catalogue import GATES, SETS
from tools.gates.rfc_command import main
from tools.gates.tree import Tree

PROJECT = Path(__file__).parents[2]
PAIRED = "docs/rfc/implemented/process/2026-12-04-paired.md"


def paired(language: str) -> str:
    """Return one language of a pair that links to another record."""
    other = "[Keep it](2026-12-01-keep-it.md)"
    line = (
        "English | [中文](2026-12-04-paired.zh.md)"
        if language == "en"
        else "[English](2026-12-04-paired.md) | 中文"
    )
    return record("Paired", extra=f"{line}\n\n") + f"\nSee {other}.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose records pass every gate, with one confirmed pair and a page that links to records."""
    tree = {name: text for name, text in seeds.INDEXED.items() if not name.endswith("keep-it.zh.md")}
    plant(tmp_path, tree)
    plant(
        tmp_path,
        {
            PAIRED: paired("en"),
            PAIRED.replace(".md", ".zh.md"): paired("zh"),
            "docs/guide.md": f"# Guide\n\n[a](rfc/{seeds.PROPOSED[9:]}), [b](rfc/{PAIRED[9:]}#problem)\n",
        },
    )
    assert run(tmp_path, "confirm", PAIRED) == 0
    assert run(tmp_path, "index") == 0
    assert red(tmp_path) == []
    return tmp_path


def run(root: Path, *arguments: str) -> int:
    """Run the command on a project as a person in its root would."""
    return main(["--root", str(root), *arguments])


def red(root: Path) -> list[tuple[str, str]]:
    """Return `(file, rule)` of everything the record gates and the link gate find."""
    tree = Tree(root)
    found = [finding for gate in SETS["rfc"] for finding in GATES[gate](tree)]
    return [(f.file, f.rule) for f in [*found, *verify_md_links.check(tree)]]


@pytest.mark.parametrize("lifecycle", ["proposed", "implemented", "rejected"])
def test_new_record_passes_every_gate(project: Path, lifecycle: str) -> None:
    """A fresh record has the skeleton of its lifecycle and stands in the index."""
    reason = ["--reason", "it is slower"] if lifecycle == "rejected" else []
    assert run(project, "new", lifecycle, "feature", "Read over HTTP/2", "--date", "2026-12-09", *reason) == 0
    path = project / f"docs/rfc/{lifecycle}/feature/2026-12-09-read-over-http-2.md"
    assert path.read_text().startswith("# RFC: Read over HTTP/2\n\nStatus: " + lifecycle)
    assert "2026-12-09 [Read over HTTP/2](" in (project / "docs/rfc/INDEX.md").read_text()
    assert red(project) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "proposed", "feature", "Keep it"], "has this title"),
        (["new", "proposed", "feature", "保留"], "Latin letters"),
        (["new", "proposed", "feature", "A day", "--date", "2026-02-30"], "real date"),
        (["new", "rejected", "feature", "No reason"], "--reason"),
        (["move", "nowhere", "proposed"], "there is no record"),
        (["move", "keep-it", "rejected"], "--reason"),
        (["move", "keep-it", "proposed", "--reason", "x"], "--reason"),
        (["move", "keep-it", "implemented"], "lies there already"),
        (["archive", "add-it"], "only implemented"),
        (["confirm", "docs/guide.md"], "no pair"),
    ],
)
def test_refusals_say_why(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """What cannot be done ends with 2, one readable line and an untouched tree."""
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    assert run(project, *arguments) == 2
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_move_keeps_links_and_names_the_new_demands(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Links to a moved proposal still work; its old sections are named until it is rewritten."""
    assert run(project, "move", "add-it", "implemented") == 1
    out = capsys.readouterr().out
    assert "section-banned" in out
    assert "section-missing" in out
    target = "docs/rfc/implemented/feature/2026-12-02-add-it.md"
    assert {rule for file, rule in red(project)} <= {"section-banned", "section-missing"}
    plant(project, {target: record("Add it")})
    assert red(project) == []


def test_move_of_a_pair_stays_confirmed(project: Path) -> None:
    """Both languages and the hashes move together; links out of the pair, and into it, are rewritten."""
    assert run(project, "move", PAIRED, "implemented", "--class", "testing") == 0
    assert red(project) == []
    moved = (project / "docs/rfc/implemented/testing/2026-12-04-paired.zh.md").read_text()
    assert "[Keep it](../process/2026-12-01-keep-it.md)" in moved
    assert "implemented/testing/2026-12-04-paired.md#problem" in (project / "docs/guide.md").read_text()


def test_move_of_a_linked_record_mends_the_pair_that_links_to_it(project: Path) -> None:
    """A confirmed pair stays confirmed when only its links were rewritten."""
    assert run(project, "move", "keep-it", "implemented", "--class", "testing") == 0
    assert red(project) == []
    assert "../testing/2026-12-01-keep-it.md" in (project / PAIRED).read_text()


def test_move_does_not_confirm_a_stale_pair(project: Path) -> None:
    """A pair that had drifted is still stale after it moved."""
    text = (project / PAIRED).read_text()
    plant(project, {PAIRED: text.replace("Text of decision.", "Another decision.")})
    run(project, "move", PAIRED, "implemented", "--class", "testing")
    assert ("docs/rfc/implemented/testing/2026-12-04-paired.md", "stale") in red(project)


def test_archive_seals_and_leaves_the_index(project: Path) -> None:
    """An archived pair is dated, sealed, out of the index, and any later edit is named."""
    assert run(project, "archive", "paired", "--date", "2027-01-02") == 0
    assert red(project) == []
    path = "docs/rfc/archived/process/2026-12-04-paired.md"
    assert (project / path).read_text().splitlines()[2:4] == ["Status: implemented", "Archived: 2027-01-02"]
    assert "paired" not in (project / "docs/rfc/INDEX.md").read_text()
    assert run(project, "archive", "old-one", "--date", "2027-01-03") == 0
    assert red(project) == []
    plant(project, {path: (project / path).read_text() + "\nMore.\n"})
    assert (path, "sealed") in red(project)


def test_check_and_index_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` and `index --check` end with 0 on a good tree and with 1 and a row on a stale index."""
    assert run(project, "check") == run(project, "index", "--check") == 0
    plant(project, {"docs/rfc/INDEX.md": "# Index\n"})
    assert run(project, "check") == run(project, "index", "--check") == 1
    assert "index-stale" in capsys.readouterr().out
    assert run(project, "index") == 0
    assert run(project, "check") == 0


def test_runs_as_a_script_from_any_folder(project: Path) -> None:
    """`tools/rfc` takes a path relative to where the person stands."""
    folder = project / "docs/rfc/implemented/process"
    done = subprocess.run(
        [str(PROJECT / "tools/rfc"), "--root", str(project), "confirm", "2026-12-04-paired.md"],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "docs/rfc/implemented/process/2026-12-04-paired.i18n.yaml\n")
