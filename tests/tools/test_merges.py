"""Two branches that each add a record merge with real git, with and without the hooks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.faults.lanes import need
from tests.tools.trees import git, plant
from tools.gates.catalogue import GATES, SETS
from tools.gates.rfc_command import main
from tools.gates.tree import Tree

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _needs_git() -> None:
    need(shutil.which("git") is not None, "git is missing; apt-get install git")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with this project's tools, its attributes and one record."""
    shutil.copytree(PROJECT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    plant(
        tmp_path,
        {
            ".gitattributes": "docs/rfc/INDEX.md merge=union\n",
            ".gitignore": "__pycache__/\n",
            "gates.toml": '[prose]\nexclude = ["tools/**"]\n[doc_refs]\nexclude = ["tools/**"]\n',
        },
    )
    git(tmp_path, "init", "-q")
    add(tmp_path, "The first of all", "2026-12-01")
    return tmp_path


def add(root: Path, title: str, day: str, kind: str = "feature") -> None:
    """Add one proposal on the present branch and commit it."""
    assert main(["--root", str(root), "new", "proposed", kind, title, "--date", day]) == 0
    git(root, "add", "-A")
    git(root, "commit", "-qm", title)


def branches(root: Path, ours: tuple[str, str, str], theirs: tuple[str, str, str]) -> None:
    """Add one record on `main` and another on `other`, both from the same commit, and stay on `main`."""
    git(root, "checkout", "-qb", "other")
    add(root, *theirs)
    git(root, "checkout", "-q", "main")
    add(root, *ours)


def red(root: Path) -> set[str]:
    """Return the rules that the record gates find broken."""
    tree = Tree(root)
    return {finding.rule for gate in SETS["rfc"] for finding in GATES[gate](tree)}


@pytest.mark.parametrize("other_class", ["feature", "architecture", "testing"])
@pytest.mark.parametrize("other_day", ["2026-12-02", "2026-12-03", "2026-12-04"])
def test_two_branches_merge_cleanly(repository: Path, other_class: str, other_day: str) -> None:
    """Git merges without a conflict; at most the order is off, and one command puts it right."""
    ours, theirs = ("Our wish", "2026-12-03", "feature"), ("Their wish", other_day, other_class)
    branches(repository, ours, theirs)
    merged = git(repository, "merge", "-q", "--no-edit", "other", check=False)
    assert merged.returncode == 0, merged.stdout
    index = (repository / "docs/rfc/INDEX.md").read_text()
    assert "<<<<" not in index
    assert index.count("[Our wish]") == index.count("[Their wish]") == index.count("[The first of all]") == 1
    assert red(repository) <= {"index-stale"}
    assert main(["--root", str(repository), "index"]) == 0
    assert red(repository) == set()


def test_without_the_merge_driver_it_conflicts(repository: Path) -> None:
    """The attribute is what makes it clean: without it the same merge stops."""
    plant(repository, {".gitattributes": "*.bin binary\n"})
    git(repository, "commit", "-qam", "no driver")
    branches(repository, ("Our wish", "2026-12-03", "feature"), ("Their wish", "2026-12-03", "feature"))
    assert git(repository, "merge", "-q", "--no-edit", "other", check=False).returncode != 0


def test_merge_hook_puts_the_index_right(repository: Path) -> None:
    """With the hooks a merge with a disordered index stops once, mended and staged; a commit ends it."""
    git(repository, "config", "core.hooksPath", "tools/hooks")
    branches(repository, ("Our wish", "2026-12-02", "feature"), ("Their wish", "2026-12-03", "feature"))
    merged = git(repository, "merge", "-q", "--no-edit", "other", check=False)
    assert merged.returncode != 0
    assert "git commit --no-edit" in merged.stderr
    assert git(repository, "commit", "--no-edit", "-q", check=False).returncode == 0
    assert git(repository, "rev-parse", "-q", "--verify", "HEAD^2", check=False).returncode == 0
    assert git(repository, "status", "--porcelain").stdout == ""
    assert red(repository) == set()


def test_commit_hook_judges_what_is_staged(repository: Path) -> None:
    """The hook refuses a staged violation even when the work tree is mended, and passes once it is staged."""
    git(repository, "config", "core.hooksPath", "tools/hooks")
    plant(repository, {"docs/guide.md": "# Guide\n\n[gone](gone.md)\n"})
    git(repository, "add", "-A")
    plant(repository, {"docs/guide.md": "# Guide\n"})
    refused = git(repository, "commit", "-qm", "guide", check=False)
    assert refused.returncode != 0
    assert "docs/guide.md:3" in refused.stdout + refused.stderr
    git(repository, "add", "-A")
    assert git(repository, "commit", "-qm", "guide", check=False).returncode == 0


def test_commit_hook_sees_the_history_of_the_archive(repository: Path) -> None:
    """Removing a sealed record and its seal is refused by the hook, which compares with the last commit."""
    name = "docs/rfc/proposed/feature/2026-12-01-the-first-of-all.md"
    text = (repository / name).read_text().replace("proposed", "implemented")
    for old, new in (("Proposal", "Decision"), ("Acceptance criteria", "Consequences")):
        text = text.replace(f"## {old}", f"## {new}")
    plant(repository, {name: None, name.replace("proposed", "implemented"): text})
    assert main(["--root", str(repository), "archive", "the-first-of-all", "--date", "2026-12-05"]) == 0
    git(repository, "config", "core.hooksPath", "tools/hooks")
    git(repository, "add", "-A")
    assert git(repository, "commit", "-qm", "archive", check=False).returncode == 0
    shutil.rmtree(repository / "docs/rfc/archived")
    git(repository, "add", "-A")
    refused = git(repository, "commit", "-qm", "forget", check=False)
    assert refused.returncode != 0
    assert "append-only" in refused.stdout + refused.stderr


def test_make_hooks_installs_them(repository: Path) -> None:
    """`make hooks` is all it takes."""
    need(shutil.which("make") is not None, "make is missing; apt-get install make")
    shutil.copy(PROJECT / "Makefile", repository / "Makefile")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(["make", "-s", "hooks"], cwd=repository, env=environment, check=True)
    assert git(repository, "config", "core.hooksPath").stdout == "tools/hooks\n"
