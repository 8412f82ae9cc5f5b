"""The package's public names, what importing it loads, and that its page lists every rule."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from turnlog import transcripts
from turnlog.transcripts import RULES, VALIDATION_RULES

PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


def test_all_names_exist() -> None:
    """`__all__` is what there is, each name once."""
    assert len(set(transcripts.__all__)) == len(transcripts.__all__)
    assert all(hasattr(transcripts, name) for name in transcripts.__all__)


def test_import_loads_no_driver_and_no_sdk() -> None:
    """Exports need neither the providers' packages nor the command line's."""
    program = """
import sys
before = set(sys.modules)  # what whoever measures coverage has loaded is not ours
import turnlog.transcripts
for name in turnlog.transcripts.__all__: getattr(turnlog.transcripts, name)
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "turnlog" in loaded
    assert not loaded & {"anthropic", "openai", "google", "pydantic", "click", "rich", "sqlite3"}


def test_page_lists_every_rule_of_the_report() -> None:
    """The documented rules of the report are the rules, with their action and reason."""
    section = PAGE.read_text(encoding="utf-8").split("\n## The report\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| ([a-z-]+) \| (.+) \|$", section, re.MULTILINE)
    assert {name: (action, reason) for name, action, reason in rows} == RULES


def test_page_lists_every_rule_of_the_validators() -> None:
    """The documented rules of each validator are its rules."""
    text = PAGE.read_text(encoding="utf-8").split("\n## What a validator checks\n")[1]
    row = re.compile(r"^\| `([a-z0-9-]+)` \| (.+) \|$", re.MULTILINE)
    documented = [dict(row.findall(part)) for part in text.split("\n### ")[1:]]
    assert documented == [dict(rules) for rules in VALIDATION_RULES.values()]


def test_style_sheet_is_part_of_the_package() -> None:
    """The page's style sheet lies beside the code, where every installation has it."""
    assert files("turnlog.transcripts").joinpath("page.css").is_file()
