"""What the gates see in Markdown and Python: fences, slugs, links, structure, prose and shown types."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tools.trees import plant
from tools.gates import verify_prose
from tools.gates.comments import prose_of
from tools.gates.markdown import Page, slugify
from tools.gates.tree import Tree
from tools.gates.verify_type_blocks import shape


@pytest.mark.parametrize(
    ("heading", "slug"),
    [
        ("First steps", "first-steps"),
        ("`turnlog.open(url)` and friends", "turnlogopenurl-and-friends"),
        ("What it is *not*", "what-it-is-not"),
        ("The snake_case rule", "the-snake_case-rule"),
        ("[A link](x.md) in it", "a-link-in-it"),
        ("问题 与 决定", "问题-与-决定"),
    ],
)
def test_slugs_are_those_of_the_forge(heading: str, slug: str) -> None:
    """A heading's fragment keeps words, hyphens and underscores, in lower case."""
    assert slugify(heading) == slug


def test_repeated_headings_get_a_number() -> None:
    """The second heading of one text has the suffix -1."""
    assert Page("# A\n\n## B\n\n## B\n").anchors == {"a", "b", "b-1"}


def test_fences_hide_what_they_hold() -> None:
    """Headings and links inside fences do not count, also with longer and other markers."""
    page = Page("````md\n```\n# No\n```\n[no](no.md)\n````\n\n~~~\n# No\n~~~\n\n# Yes\n\n[yes](yes.md)\n")
    assert [h.text for h in page.headings] == ["Yes"]
    assert [link.target for link in page.links] == ["yes.md"]
    assert [fence.info for fence in page.fences] == ["md", ""]


def test_links_of_every_form_are_seen() -> None:
    """Inline, titled, reference, image and HTML targets count; those in code do not."""
    text = '[a](a.md) ![b](b.png "B") <a href="c.md">c</a> `[d](d.md)` [e][e]\n\n[e]: e.md\n'
    assert sorted(link.target for link in Page(text).links) == ["a.md", "b.png", "c.md", "e.md"]


def test_signature_counts_lists_and_tables() -> None:
    """Structure is heading depths, list items by level and table sizes."""
    text = "# A\n\n- a\n  1. x\n  2. y\n- b\n\n| a | b |\n|---|---|\n| `1|2` | 3 |\n"
    assert [what for _, what in Page(text).signature()] == [
        "heading of depth 1",
        "bullet list of 2 items",
        "numbered list of 2 items",
        "table of 3 rows and 2 columns",
    ]


def test_prose_of_python_is_comments_and_docstrings() -> None:
    """Strings that are data are not prose; unparsable source yields nothing."""
    source = '"""Top."""\nX = "data"  # why\n\n\nclass A:\n    """In A."""\n'
    assert sorted(prose_of(source)) == [(1, '"""Top."""'), (2, "# why"), (6, '    """In A."""')]
    assert list(prose_of("def (")) == []


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("change-narration", "The field was renamed to seq."),
        ("change-narration", "This module now uses msgspec."),
        ("change-narration", "It no longer needs a lock."),
        ("change-narration", "Logs used to be rewritten."),
        ("change-narration", "We switched to frames."),
        ("change-narration", "The old implementation copied."),
        ("plan", "Encryption will be added later."),
        ("plan", "Windows support is coming soon."),
        ("plan", "Search is not yet implemented."),
        ("discussion", "See issue #12 for the reason."),
        ("discussion", "Changed per review."),
        ("discussion", "The reviewer asked for a lock."),
        ("machine-path", "Look into /home/jdoe/logs/a."),
        ("machine-path", "Kept under /root/data."),
        ("workplace-word", "As in design.md, part 2."),
        ("workplace-word", "See AS 9.6."),
        ("download-address", "Fetch it from registry.npmjs.org today."),
        ("debt-marker", "FIXME: this is slow."),
    ],
)
def test_refused_sentences(tmp_path: Path, rule: str, sentence: str) -> None:
    """Each way of saying it is refused, in a page and in a comment."""
    plant(tmp_path, {"a.md": f"# A\n\n{sentence}\n", "b.py": f"X = 1  # {sentence}\n"})
    found = {(finding.file, finding.rule) for finding in verify_prose.check(Tree(tmp_path))}
    assert found == {("a.md", rule), ("b.py", rule)}


@pytest.mark.parametrize(
    "sentence",
    [
        "A session that no longer exists is an error.",
        "The lock is moved away under a new inode.",
        "Now the writer may continue.",
        "The issue is that a sync may fail.",
        "Text of the previous turn is kept.",
        "Temp files older than an hour are removed by a writer.",
        "Open /home/user/project or /srv/app.",
        "The shared barrier returns.",
        "A hackathon is no hack.",
    ],
)
def test_honest_sentences_pass(tmp_path: Path, sentence: str) -> None:
    """Sentences about how things are pass, though they use near words."""
    plant(tmp_path, {"a.md": f"# A\n\n{sentence}\n", "b.py": f"X = 1  # {sentence}\n"})
    assert list(verify_prose.check(Tree(tmp_path))) == []


def test_binary_files_are_left_alone(tmp_path: Path) -> None:
    """A file with NUL bytes is not text."""
    (tmp_path / "a.bin").write_bytes(b"\0/root/data FIXME\n")
    assert list(verify_prose.check(Tree(tmp_path))) == []


def test_shape_ignores_what_a_reader_of_a_type_does_not_rely_on() -> None:
    """Docstrings, comments, bodies and spelling do not count; names, types and defaults do."""

    def one(text: str) -> str:
        return shape(ast.parse(text).body[0])

    full = (
        'class A:\n    """Doc."""\n\n    x: int = 1\n    "X."\n\n'
        '    def f(self, a: "int") -> int:\n        return a\n'
    )
    assert one(full) == one("class A:\n    x : int = 1  # x\n    def f(self, a: 'int') -> int: ...\n")
    assert one(full) != one("class A:\n    x: int = 2\n    def f(self, a: 'int') -> int: ...\n")
