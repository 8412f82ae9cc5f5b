"""What prose may say: how things are, not how they came to be, who said so or where it was written.

Narration and plans are looked for in Markdown and in comments and docstrings; machine paths, workplace words,
download addresses and debt markers in every text file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .comments import prose_of
from .finding import Finding
from .markdown import Page
from .tree import Tree, matches

RULES = {
    "change-narration": "say how it is; what it was before belongs to the history and to CHANGELOG.md",
    "plan": "say what is true today; a plan is a record under proposed/",
    "discussion": "give the reason itself, or link the decision record that holds it",
    "machine-path": "write a path relative to the project, or an invented one such as /srv/app",
    "workplace-word": "name the published document, section or promise a reader of the repository can open",
    "download-address": "name package and version; where to fetch it from is the reader's own setting",
    "debt-marker": "finish it, or record the open work as a proposal",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One thing that prose must not say."""

    rule: str
    regex: re.Pattern[str]
    prose_only: bool


def _prose(rule: str, *alternatives: str) -> Pattern:
    return Pattern(rule, re.compile("|".join(alternatives), re.IGNORECASE), prose_only=True)


def _text(rule: str, *alternatives: str) -> Pattern:
    return Pattern(rule, re.compile("|".join(alternatives)), prose_only=False)


_VERBS = r"(?:renamed|moved|replaced|removed|rewritten|refactored|extracted|introduced|dropped|deprecated)"
PATTERNS = (
    _prose(
        "change-narration",
        r"\b(?:previously|formerly)\b",
        r"\bused to (?:be|have|do|return|raise|call|live|use|write|read)\b",
        rf"\b(?:was|were|has been|have been|got) (?:recently |since |just )?{_VERBS}"
        r" (?:from|to|in|into|by|with|out)\b",
        r"\b(?:it|this|which|and|module|function|class|code|gate|test|we) now"
        r" (?:uses?|returns?|raises?|calls?|takes?|supports?|lives?)\b",
        r"\bno longer (?:uses?|needs?|supports?|returns?|raises?|calls?|requires?|takes?)\b",
        r"\b(?:we|I) (?:changed|switched|moved|renamed|decided|replaced|removed|added|refactored|rewrote)\b",
        r"\bthe (?:old|previous|new) (?:code|implementation|version of|behaviou?r|approach|logic)\b",
        r"\bas of (?:this|the latest) (?:change|commit|version)\b",
        r"\bin this (?:change|commit|PR|pull request|patch)\b",
    ),
    _prose(
        "plan",
        r"\bcoming soon\b",
        r"\bfor the time being\b",
        r"\bin (?:a|some) (?:later|future) (?:version|release|change|stage)\b",
        r"\b(?:will|is going to|should) (?:later )?be (?:added|implemented|supported|built|done)"
        r" (?:later|soon|next|in)\b",
        r"\bnot (?:yet|currently) (?:implemented|supported|built|done)\b",
        r"\bwe (?:plan|intend|hope) to\b",
    ),
    _prose(
        "discussion",
        r"\bas (?:discussed|agreed|requested|suggested|mentioned|pointed out|decided)"
        r" (?:in|by|with|on|at|during|earlier|before|above)\b",
        r"\bper (?:the )?(?:review|discussion|feedback|request|meeting)\b",
        r"\b(?:PR|pull request|merge request|ticket|issue) #?\d+\b",
        r"\b(?:the )?reviewers? (?:said|asked|wanted|noted|suggested)\b",
        r"\bsee (?:the )?(?:chat|slack|thread|discussion|meeting|e-?mail)\b",
    ),
    _text(
        "machine-path",
        r"/(?:work|farm)/(?:main|shared|steering|\.library)\b",
        r"(?<![\w.])/(?:home|Users)/(?!(?:user|me|you|dev|alice|bob|someone|runner|[a-z])\b)[a-z][\w-]*/",
        r"(?<![\w.])/root/\w",
        r"(?<![\w.])/opt/(?:pypi|wheels)\b",
        r"\b[A-Z]:\\{1,2}Users\\{1,2}\w",
    ),
    _text(
        "workplace-word",
        r"\b(?:SL|AS) \d+(?:\.\d+)*\b",
        r"\.\./shared/|\bshared/(?:spec|corpus|style|design|cases|hooks|tools)\b",
        r"\b(?:session-log|agent-and-surroundings|interop-peer|dsh-later-formats)\.md\b|\bspec/parts\.md",
        r"\bdesign\.md\b",
        r"\b[Aa]gent brief\b|\b[Cc]orpus brief\b|\bBRIEF\.md\b",
        r"\bE-(?:events|session|coord|store|jsonl|testing|cli|lanes|project)\b",
        r"\bthe (?:CEO|steering repo|lead engineer)\b",
    ),
    _text(
        "download-address",
        r"\bfiles\.pythonhosted\.org\b|\bpypi\.org/simple\b",
        r"\bregistry\.(?:npmjs\.org|yarnpkg\.com)\b",
        r"\bdeb\.debian\.org\b",
        r'"resolved":\s*"https?://',
        r"(?:--|^\s*)(?:extra-)?index-url\b",
    ),
    _text("debt-marker", r"\b(?:TODO|FIXME|XXX|HACK)\b(?!\w)"),
)

_NARRATING = ["CHANGELOG.md", "**/CHANGELOG.md"]
_MAX_BYTES = 1_000_000


def check(tree: Tree) -> Iterator[Finding]:
    """Report prose that breaks a rule. Settings: `[tool.gates.prose] exclude, narrating`."""
    section = tree.section("prose")
    narrating = _NARRATING + list(section.get("narrating", []))
    for name in tree.select(["**"], list(section.get("exclude", []))):
        if (tree.root / name).stat().st_size > _MAX_BYTES:
            continue
        text = tree.text(name)
        hits = [pattern for pattern in PATTERNS if pattern.regex.search(text)]
        if not hits:
            continue
        yield from _search(name, enumerate(text.splitlines(), 1), [p for p in hits if not p.prose_only])
        in_prose = [
            p for p in hits if p.prose_only and not (matches(name, narrating) and p.rule != "discussion")
        ]
        if in_prose:
            yield from _search(name, _prose_lines(name, text), in_prose)


def _prose_lines(name: str, text: str) -> Iterator[tuple[int, str]]:
    if name.endswith(".md"):
        yield from Page(text).prose()
    elif name.endswith(".py"):
        yield from prose_of(text)


def _search(
    name: str, lines: Iterator[tuple[int, str]] | enumerate[str], patterns: list[Pattern]
) -> Iterator[Finding]:
    for number, line in lines:
        for pattern in patterns:
            found = pattern.regex.search(line)
            if found:
                yield Finding(name, number, pattern.rule, f"says {found[0].strip()!r}", RULES[pattern.rule])
