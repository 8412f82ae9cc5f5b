"""Every rule of every gate is seen red on a seeded violation and green once it is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools import seeded_pages as pages
from tests.tools import seeded_records as records
from tests.tools.trees import Files, git, plant
from tools.gates.catalogue import GATES, MODULES
from tools.gates.finding import Finding
from tools.gates.tree import Tree

SEEDED: dict[str, tuple[Files, dict[str, Files]]] = {
    "gen_rfc_index": (records.INDEXED, records.INDEX),
    "verify_bilingual": (records.PAIR, records.BILINGUAL),
    "verify_doc_refs": (pages.PAGES, pages.REFERENCES),
    "verify_md_links": (pages.PAGES, pages.LINKS),
    "verify_prose": (pages.PROSE_TREE, pages.PROSE),
    "verify_rfc_archive": (records.ARCHIVE_TREE, records.ARCHIVE),
    "verify_rfc_classification": (records.RECORDS, records.CLASSIFICATION),
    "verify_rfc_format": (records.RECORDS, records.FORMAT),
    "verify_source_shape": (pages.SHAPE_TREE, pages.SHAPE),
    "verify_test_docstrings": (pages.TESTS_TREE, pages.DOCSTRINGS),
    "verify_type_blocks": (pages.TYPES_TREE, pages.TYPES),
}
CASES = [(gate, rule) for gate, (_, seeds) in SEEDED.items() for rule in seeds]


def findings(gate: str, root: Path) -> list[Finding]:
    """Run one gate on a tree as the runner does."""
    return sorted(GATES[gate](Tree(root)))


def test_every_rule_has_a_seeded_violation() -> None:
    """No gate and no rule exists without a tree that it refuses."""
    assert {gate: set(module.RULES) for gate, module in MODULES.items()} == {
        gate: set(seeds) for gate, (_, seeds) in SEEDED.items()
    }


@pytest.mark.parametrize("gate", sorted(SEEDED))
def test_good_tree_passes(gate: str, tmp_path: Path) -> None:
    """The gate finds nothing in its good tree, with and without git."""
    plant(tmp_path, SEEDED[gate][0])
    assert findings(gate, tmp_path) == []
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "good")
    assert findings(gate, tmp_path) == []


@pytest.mark.parametrize(("gate", "rule"), CASES)
def test_seeded_violation_is_red_then_green(gate: str, rule: str, tmp_path: Path) -> None:
    """The seeded violation is named by its rule with a place and a way to mend; undoing it passes again."""
    good, seeds = SEEDED[gate]
    plant(tmp_path, good)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "good")
    plant(tmp_path, seeds[rule])
    red = findings(gate, tmp_path)
    hits = [finding for finding in red if finding.rule == rule]
    assert hits
    assert all(finding.mend and finding.what and finding.file for finding in red)
    added = [name for name in seeds[rule] if name not in good]
    plant(tmp_path, {**good, **dict.fromkeys(added)})
    assert findings(gate, tmp_path) == []
