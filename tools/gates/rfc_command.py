"""`tools/rfc`: make, move, archive, confirm and check decision records. The gates stay the judges."""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from . import (
    gen_rfc_index,
    verify_bilingual,
    verify_rfc_archive,
    verify_rfc_classification,
    verify_rfc_format,
)
from .finding import render
from .records import (
    ARCHIVE,
    CLASSES,
    LIFECYCLES,
    STATUS,
    Record,
    records,
    root_of,
    split_name,
)
from .tree import Tree

_ENDINGS = (".md", ".zh.md", ".i18n.yaml")
_LINK = re.compile(r"(\]\(\s*|^\s{0,3}\[[^\]]+\]:\s*)([^)\s#]+\.md)")

_SKELETON = {
    "proposed": ("Problem", "Proposal", "Alternatives considered", "Acceptance criteria", "Risks"),
    "implemented": ("Problem", "Decision", "Alternatives considered", "Consequences"),
    "rejected": ("Problem", "Proposal", "Alternatives considered"),
}
_HINTS = {
    "Problem": "What does not work, for whom, and how it shows. No solution here.",
    "Proposal": "What is proposed, precise enough to be wrong.",
    "Decision": "What holds, in the present tense.",
    "Alternatives considered": "- **The other way.** What it gives, and the reason it lost.",
    "Acceptance criteria": "What must be seen working before this is implemented.",
    "Risks": "What may go wrong, and how it would be noticed.",
    "Consequences": "What follows for users, for the code and for later decisions.",
}


class CommandError(Exception):
    """The command cannot do what was asked; the message says why and what to do."""


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; return the exit code."""
    options = _parser().parse_args(argv)
    tree = Tree(options.root)
    try:
        code: int = options.run(tree, options)
    except CommandError as error:
        print(f"rfc: {error}", file=sys.stderr)
        return 2
    return code


def _new(tree: Tree, options: argparse.Namespace) -> int:
    slug = re.sub(r"[^a-z0-9]+", "-", options.title.lower()).strip("-")
    name = f"{options.date}-{slug}.md"
    if not slug or split_name(name) is None:
        raise CommandError(f"{name!r} is no file name; give a title with Latin letters and a real date")
    taken = [r.path for r in records(tree) if r.slug == slug]
    if taken:
        raise CommandError(f"{taken[0]} has this title; change that record or choose another title")
    if options.lifecycle == "rejected" and not options.reason:
        raise CommandError("a rejected record needs --reason")
    status = f"Status: {options.lifecycle}" + (
        f" — {options.reason}" if options.lifecycle == "rejected" else ""
    )
    body = "\n".join(f"## {title}\n\n{_HINTS[title]}\n" for title in _SKELETON[options.lifecycle])
    path = f"{root_of(tree)}/{options.lifecycle}/{options.kind}/{name}"
    _write(tree, path, f"# RFC: {options.title}\n\n{status}\n\n{body}")
    gen_rfc_index.write(Tree(tree.root))
    print(path)
    return 0


def _move(tree: Tree, options: argparse.Namespace) -> int:
    record = _find(tree, options.record)
    if (options.lifecycle == "rejected") != bool(options.reason):
        raise CommandError("give --reason with rejected, and only then")
    kind = options.kind or record.kind
    target = f"{root_of(tree)}/{options.lifecycle}/{kind}/{posixpath.basename(record.path)}"
    if target == record.path:
        raise CommandError(f"{record.path} lies there already")
    status = f"Status: {options.lifecycle}" + (f" — {options.reason}" if options.reason else "")
    _relocate(tree, record, target, lambda line: status if STATUS.match(line) else line)
    moved = Tree(tree.root)
    gen_rfc_index.write(moved)
    print(target)
    found = verify_rfc_format.check(moved)
    table = render([("verify_rfc_format", finding) for finding in found if finding.file == target])
    if table:
        print(f"\nThe text has to follow the new lifecycle in the same change:\n{table}")
    return 1 if table else 0


def _archive(tree: Tree, options: argparse.Namespace) -> int:
    record = _find(tree, options.record)
    if record.lifecycle != "implemented":
        raise CommandError(
            "only implemented records are archived; a proposal is decided first, a rejected one is kept"
        )
    target = f"{root_of(tree)}/{ARCHIVE}/{record.kind}/{posixpath.basename(record.path)}"
    dated = f"Status: implemented\nArchived: {options.date}"
    _relocate(tree, record, target, lambda line: dated if line == "Status: implemented" else line)
    tree = Tree(tree.root)
    stem = target.removesuffix(".md")
    if stem + ".zh.md" in tree.file_set:
        _write(tree, stem + ".i18n.yaml", verify_bilingual.hash_record(tree, stem))
    manifest = verify_rfc_archive.manifest_path(tree)
    text = tree.text(manifest) if manifest in tree.file_set else verify_rfc_archive.manifest_text({})
    files = verify_rfc_archive.read_manifest(text)
    if files is None:
        raise CommandError(f"{manifest} is not a manifest; restore it first")
    base = len(f"{root_of(tree)}/{ARCHIVE}/")
    for path in (stem + end for end in _ENDINGS):
        if path in tree.file_set:
            files[path[base:]] = verify_rfc_archive.seal(tree.raw(path))
    _write(tree, manifest, verify_rfc_archive.manifest_text(files))
    gen_rfc_index.write(Tree(tree.root))
    print(target)
    return 0


def _confirm(tree: Tree, options: argparse.Namespace) -> int:
    """Write hash records; a person has read both languages, so every pair is named."""
    for given in options.pages:
        stem = re.sub(r"(\.zh)?\.md$", "", _relative(tree, given))
        missing = [stem + end for end in (".md", ".zh.md") if stem + end not in tree.file_set]
        if missing:
            raise CommandError(f"{missing[0]} does not exist, so there is no pair to confirm")
        _write(tree, stem + ".i18n.yaml", verify_bilingual.hash_record(tree, stem))
        print(stem + ".i18n.yaml")
    return 0


def _check(tree: Tree, _options: argparse.Namespace) -> int:
    modules = (
        verify_rfc_classification,
        verify_rfc_format,
        verify_rfc_archive,
        gen_rfc_index,
        verify_bilingual,
    )
    found = [
        (module.__name__.rpartition(".")[2], finding) for module in modules for finding in module.check(tree)
    ]
    print(render(found) or f"{sum(1 for _ in records(tree))} records, nothing to mend")
    return 1 if found else 0


def _index(tree: Tree, options: argparse.Namespace) -> int:
    return gen_rfc_index.main(["--root", str(tree.root), *(["--check"] if options.check else [])])


def _hooks(tree: Tree, _options: argparse.Namespace) -> int:
    """Point git at the project's hooks."""
    subprocess.run(["git", "config", "core.hooksPath", "tools/hooks"], cwd=tree.root, check=True)
    print("git runs tools/hooks before each commit")
    return 0


def _relative(tree: Tree, given: str) -> str:
    """Return a path relative to the project, taken from the current folder or from the project's root."""
    here = Path(os.path.abspath(given))
    if here.exists() and here.is_relative_to(tree.root):
        return here.relative_to(tree.root).as_posix()
    return given


def _find(tree: Tree, given: str) -> Record:
    wanted = _relative(tree, given)
    hits = [r for r in records(tree) if wanted in (r.path, r.slug, posixpath.basename(r.path))]
    if not hits:
        raise CommandError(
            f"there is no record {given!r}; give its path, file name or title part of the name"
        )
    return hits[0]


def _relocate(tree: Tree, record: Record, target: str, rewrite: Callable[[str], str]) -> None:
    """Move a record with its counterpart, keep links in and out of it, rewrite its lines.

    A mechanical rewrite of both languages keeps a confirmed pair confirmed; a stale one stays stale.
    """
    stem = target.removesuffix(".md")
    moves = {record.stem + end: stem + end for end in _ENDINGS if record.stem + end in tree.file_set}
    taken = [new for new in moves.values() if new in tree.file_set]
    if taken:
        raise CommandError(f"{taken[0]} exists already")
    confirmed = [pair for pair in verify_bilingual.stems(tree) if _is_confirmed(tree, pair)]
    for old, new in moves.items():
        text = tree.text(old)
        if old.endswith(".md"):
            text = _relink("\n".join(rewrite(line) for line in text.split("\n")), old, new, moves)
        _write(tree, new, text)
        (tree.root / old).unlink()
    _relink_others(tree, moves)
    after = Tree(tree.root)
    for pair in confirmed:
        new_stem = stem if pair == record.stem else pair
        _write(after, new_stem + ".i18n.yaml", verify_bilingual.hash_record(after, new_stem))


def _is_confirmed(tree: Tree, stem: str) -> bool:
    whole = all(stem + end in tree.file_set for end in _ENDINGS)
    return whole and tree.text(stem + ".i18n.yaml") == verify_bilingual.hash_record(tree, stem)


def _relink(text: str, old: str, new: str, moves: dict[str, str]) -> str:
    """Rewrite relative links of a page that moves from `old` to `new`, and links to files that move."""

    def replace(match: re.Match[str]) -> str:
        target = match[2]
        if re.match(r"^[a-zA-Z][\w+.-]*:|^/", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(old), target))
        path = moves.get(path, path)
        return match[1] + posixpath.relpath(path, posixpath.dirname(new) or ".")

    return "\n".join(_LINK.sub(replace, line) for line in text.split("\n"))


def _relink_others(tree: Tree, moves: dict[str, str]) -> None:
    """Rewrite links to the moved files in every other page but the generated index and the sealed archive."""
    for name in tree.select(["**.md"]):
        sealed = name.startswith(f"{root_of(tree)}/{ARCHIVE}/")
        if name in moves or sealed or name == gen_rfc_index.index_path(tree):
            continue
        text = tree.text(name)
        again = _relink_targets(text, name, moves)
        if again != text:
            _write(tree, name, again)


def _relink_targets(text: str, name: str, moves: dict[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[2]))
        if path not in moves:
            return match[0]
        return match[1] + posixpath.relpath(moves[path], posixpath.dirname(name) or ".")

    return "\n".join(_LINK.sub(replace, line) for line in text.split("\n"))


def _write(tree: Tree, path: str, text: str) -> None:
    target = tree.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    today = datetime.now(UTC).date().isoformat()
    parser = argparse.ArgumentParser(prog="rfc", description="Keep the decision records of a project.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2], help="the project")
    commands = parser.add_subparsers(required=True)
    new = commands.add_parser("new", help="write a record's skeleton")
    new.add_argument("lifecycle", choices=LIFECYCLES)
    new.add_argument("kind", metavar="class", choices=CLASSES)
    new.add_argument("title")
    new.add_argument("--reason", help="why it was rejected")
    new.add_argument("--date", default=today, help="the day it was first proposed; default: today")
    new.set_defaults(run=_new)
    move = commands.add_parser("move", help="change lifecycle or class, links and status included")
    move.add_argument("record")
    move.add_argument("lifecycle", choices=LIFECYCLES)
    move.add_argument("--class", dest="kind", choices=CLASSES, help="default: the class it has")
    move.add_argument("--reason", help="why it is rejected")
    move.set_defaults(run=_move)
    archive = commands.add_parser(
        "archive", help="freeze an implemented record that governs nothing any more"
    )
    archive.add_argument("record")
    archive.add_argument("--date", default=today, help="default: today")
    archive.set_defaults(run=_archive)
    confirm = commands.add_parser("confirm", help="record that a person read both languages as the same")
    confirm.add_argument("pages", nargs="+")
    confirm.set_defaults(run=_confirm)
    check = commands.add_parser("check", help="run every record gate")
    check.set_defaults(run=_check)
    index = commands.add_parser("index", help="write INDEX.md")
    index.add_argument("--check", action="store_true", help="compare, write nothing")
    index.set_defaults(run=_index)
    hooks = commands.add_parser("hooks", help="install the git hooks")
    hooks.set_defaults(run=_hooks)
    return parser
