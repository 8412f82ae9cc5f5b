"""Every fence of the README and the pages does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.fences import PROJECT, run_page, same
from tools.gates.markdown import Page

PAGES = sorted(
    path.relative_to(PROJECT).as_posix()
    for path in [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *PROJECT.glob("docs/**/*.md")]
    if Page(path.read_text(encoding="utf-8")).fences
)


@pytest.fixture(autouse=True)
def _server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the page about PostgreSQL a server with an empty database, by the driver's own variables."""
    if "docs/postgresql.md" not in request.node.nodeid:
        return
    from tests.postgres_cluster import PORT, shared_cluster  # starts a server: only where it is needed

    cluster = shared_cluster()
    cluster.admin().execute("drop database if exists agents")
    cluster.admin().execute("create database agents")
    for name, value in (("HOST", str(cluster.home)), ("PORT", str(PORT)), ("USER", "turnlog")):
        monkeypatch.setenv(f"PG{name}", value)


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, tmp_path: Path) -> None:
    """A reader who follows the page from top to bottom sees what it shows."""
    assert run_page((PROJECT / page).read_text(encoding="utf-8"), tmp_path) == []


def test_readme_shows_the_crash_in_twelve_lines() -> None:
    """The first program of the README is short enough to be read at a glance."""
    program = (PROJECT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert len([line for line in program.splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("```python\nraise SystemExit(3)\n```\n", "exit code 3"),
        ("```python\nprint(1)\n```\n\n```output\n2\n```\n", "printed '1\\n'"),
        ("```python\nprint(1)\n```\n", "the page says ''"),
        ("```python no-run\nprint(1)\n```\n", "must run"),
        ("```python await\nx = 1\n```\n\n```python await\nprint(y)\n```\n", "NameError"),
        ("```python await\nimport asyncio\nawait asyncio.sleep(0)\nprint(1)\n```\n", "printed '1\\n'"),
        ("```console\n$ rm -r x\n```\n", "only turnlog"),
        ("```console\n$ turnlog --version\nturnlog 9.9\n```\n", "--version printed"),
        ("```json\n{'a': 1}\n```\n", "is not JSON"),
        ("```ruby\nputs 1\n```\n", "nobody decided"),
    ],
)
def test_wrong_pages_are_named(page: str, reason: str, tmp_path: Path) -> None:
    """A page that claims something else than what happens is found, with the line of the fence."""
    (found,) = run_page(page, tmp_path)
    assert reason in found.reason
    assert found.line >= 1


def test_right_page_passes(tmp_path: Path) -> None:
    """Programs share the folder, awaiting fences share their names, output is compared line by line."""
    page = (
        "```python\nfrom pathlib import Path\n\nPath('a').write_text('x')\n```\n"
        "```python await\nfrom pathlib import Path\n```\n"
        "```python await\nprint(Path('a').read_text())\n```\n```output\nx\n```\n"
        "```console\n$ turnlog --version\nturnlog ...\n```\n"
    )
    assert run_page(page, tmp_path) == []


@pytest.mark.parametrize(
    ("wanted", "output", "equal"),
    [
        ("a ... c\n", "a b c\n", True),
        ("a ... c\n", "a\nc\n", False),
        ("a.c\n", "abc\n", False),
        ("", "", True),
    ],
)
def test_dots_stand_for_text_within_a_line(wanted: str, output: str, equal: bool) -> None:
    """Three dots match anything up to the end of the line, and everything else is literal."""
    assert same(wanted, output) is equal
