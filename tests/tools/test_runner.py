"""The runner: names, sets, outside commands, the table and the exit codes, on trees of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import seeded_pages as pages
from tests.tools.trees import plant
from tools.gates import commands
from tools.gates.__main__ import main
from tools.gates.catalogue import GATES, SETS, names_in
from tools.gates.finding import Finding, render
from tools.gates.tree import Tree, matches

PROJECT = Path(__file__).parents[2]


def test_good_tree_ends_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every gate runs on another project and the last line counts them."""
    plant(tmp_path, pages.PAGES)
    assert main(["gates", "--root", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{len(GATES)} gates, 0 findings"
    assert sum(line.startswith("ok") for line in lines) == len(GATES)


def test_table_names_file_line_rule_and_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding is one row with its place, its rule and the way to mend it, and the run ends with 1."""
    plant(tmp_path, {**pages.PAGES, **pages.LINKS["target"]})
    assert main(["docs", "--root", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("verify_md_links"))
    assert row.split()[:3] == ["verify_md_links", "docs/guide.md:5", "target"]
    assert row.endswith("→ correct the path (case matters) or add the file")
    assert "FAILED  verify_md_links" in out


def test_unknown_name_ends_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is neither gate, command nor set is refused with a way to see the names."""
    assert main(["verify_nothing", "--root", str(tmp_path)]) == 2
    assert "--list" in capsys.readouterr().err


def test_sets_expand_once() -> None:
    """A gate named twice runs once, and `all` holds the commands and every gate."""
    assert names_in(["verify_prose", "docs"], []).count("verify_prose") == 1
    assert set(names_in(["all"], ["lint"])) == {"lint", *GATES}
    assert set(SETS["gates"]) == set(GATES)


def test_list_shows_sets_and_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` shows what can be named."""
    plant(tmp_path, {"gates.toml": '[commands]\nlint = { run = ["true"] }\n'})
    assert main(["--list", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "rfc: verify_rfc_classification" in out
    assert "commands: lint" in out


def command(tmp_path: Path, script: str) -> list[Finding]:
    """Run a declared command that is a shell script."""
    plant(
        tmp_path, {"gates.toml": f"[commands]\nit = {{ run = ['sh', '-c', '{script}'], mend = 'mend it' }}\n"}
    )
    return commands.run(Tree(tmp_path), "it")


def test_passing_command_finds_nothing(tmp_path: Path) -> None:
    """Exit code 0 is a pass, whatever is printed."""
    assert command(tmp_path, "echo a.py:1: shouting") == []


def test_command_lines_become_rows(tmp_path: Path) -> None:
    """Lines with a file and a line become findings with the checker's own code; notes do not."""
    script = (
        "echo src/a.py:3:7: F401 unused; echo src/b.py:9: error: wrong  [arg-type]; "
        "echo src/b.py:9: note: see; exit 1"
    )
    found = command(tmp_path, script)
    assert [(f.file, f.line, f.rule, f.mend) for f in found] == [
        ("src/a.py", 3, "F401", "mend it"),
        ("src/b.py", 9, "arg-type", "mend it"),
    ]


def test_failing_command_without_rows_shows_its_output(tmp_path: Path) -> None:
    """A checker that prints no places is shown by the end of what it printed."""
    (found,) = command(tmp_path, "echo a layer is broken; exit 1")
    assert (found.rule, found.what) == ("failed", "a layer is broken")


def test_missing_command_is_a_finding(tmp_path: Path) -> None:
    """A checker that is not installed does not count as passed."""
    plant(tmp_path, {"gates.toml": '[commands]\nit = { run = ["no-such-checker"] }\n'})
    (found,) = commands.run(Tree(tmp_path), "it")
    assert found.rule == "missing"


def test_render_of_nothing_is_empty() -> None:
    """No findings, no table."""
    assert render([]) == ""


def test_settings_of_pyproject_and_gates_file(tmp_path: Path) -> None:
    """`gates.toml` wins over pyproject.toml; without either there are no settings."""
    assert Tree(tmp_path).settings == {}
    plant(tmp_path, {"pyproject.toml": "[tool.gates.rfc]\nroot = 'decisions'\n"})
    assert Tree(tmp_path).section("rfc") == {"root": "decisions"}
    plant(tmp_path, {"gates.toml": "[rfc]\nroot = 'notes'\n"})
    assert Tree(tmp_path).section("rfc") == {"root": "notes"}


@pytest.mark.parametrize(
    ("name", "pattern", "hit"),
    [
        ("a.md", "**.md", True),
        ("docs/b/a.md", "**.md", True),
        ("docs/a.md", "docs/**.md", True),
        ("docs/b/a.md", "docs/*.md", False),
        ("docs/b/a.md", "docs/**/*.md", True),
        ("docs/a.md", "docs/**/*.md", True),
        ("docs/a+b.md", "docs/a?b.md", True),
        ("docs/a.mdx", "**.md", False),
    ],
)
def test_patterns(name: str, pattern: str, hit: bool) -> None:
    """`*` stays within a folder, `**` crosses folders, everything else is literal."""
    assert matches(name, [pattern]) is hit


def test_runs_as_a_module_on_another_tree(tmp_path: Path) -> None:
    """The documented command works from this checkout on a tree elsewhere, with any Python."""
    plant(tmp_path, {**pages.PROSE_TREE, **pages.PROSE["plan"]})
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tools.gates", "verify_prose", "--root", str(tmp_path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "README.md:3" in done.stdout
