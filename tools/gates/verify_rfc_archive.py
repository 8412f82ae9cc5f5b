"""The archive of decision records is frozen: complete, dated, sealed by hash and only ever added to.

An implemented record that governs nothing moves to `archived/{class}/` whole and is never edited.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import date

from .finding import Finding
from .records import ARCHIVE, MANIFEST, Record, records, root_of, title_of
from .tree import Tree

RULES = {
    "header": "begin `# RFC: <title>`, blank, `Status: implemented`, `Archived: YYYY-MM-DD`, blank",
    "date": "use a real date, not before the one in the file name, the same in both languages",
    "triplet": "archive the record with its counterpart and its hash record, or with neither",
    "manifest": "seal new files with `tools/rfc archive`; the manifest is version 1 with sorted paths",
    "sealed": "restore the file: an archived record is never edited or removed",
    "append-only": "restore the manifest's entries; the archive is only added to",
}

_ARCHIVED = re.compile(r"^Archived: (\d{4}-\d{2}-\d{2})$")


def manifest_path(tree: Tree) -> str:
    """Return where the seal list lies, relative to the project's root."""
    return f"{root_of(tree)}/{ARCHIVE}/{MANIFEST}"


def seal(data: bytes) -> str:
    """Return the manifest's value for a file."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def manifest_text(files: dict[str, str]) -> str:
    """Return the manifest as it is written: version 1, paths sorted."""
    return json.dumps({"version": 1, "files": dict(sorted(files.items()))}, indent=2) + "\n"


def read_manifest(text: str) -> dict[str, str] | None:
    """Return path to seal, or None when the text is not a manifest."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    files = value.get("files") if isinstance(value, dict) and set(value) == {"version", "files"} else None
    if value.get("version") != 1 if isinstance(value, dict) else True:
        return None
    if not isinstance(files, dict) or list(files) != sorted(files):
        return None
    good = all(isinstance(v, str) and re.fullmatch(r"sha256:[0-9a-f]{64}", v) for v in files.values())
    return files if good else None


def check(tree: Tree) -> Iterator[Finding]:
    """Report archived files that are incomplete, edited, unsealed or gone."""
    stored = [name for name in tree.under(f"{root_of(tree)}/{ARCHIVE}") if name != manifest_path(tree)]
    for record in records(tree, archived=True):
        yield from _check_record(tree, record)
    for name in stored:
        stem = re.sub(r"(\.zh\.md|\.i18n\.yaml)$", "", name)
        if stem != name and stem + ".md" not in tree.file_set:
            yield _at(name, 0, "triplet", "its English record is not in the archive")
    path = manifest_path(tree)
    text = tree.text(path) if path in tree.file_set else manifest_text({})
    files = read_manifest(text)
    if files is None:
        yield _at(path, 0, "manifest", "is not a manifest of version 1 with sorted paths and seals")
        return
    yield from _check_seals(tree, stored, files)
    yield from _check_history(tree, path, files)


def _check_record(tree: Tree, record: Record) -> Iterator[Finding]:
    pair = [record.stem + end for end in (".zh.md", ".i18n.yaml") if record.stem + end in tree.file_set]
    if len(pair) == 1:
        yield _at(record.path, 0, "triplet", f"only {pair[0].rpartition('/')[2]} came along")
    days = set()
    for name in [record.path, *(p for p in pair if p.endswith(".md"))]:
        lines = [*tree.text(name).splitlines()[:5], "", "", "", "", ""]
        shown = _ARCHIVED.match(lines[3])
        well = title_of(lines[0]) and not lines[1] and lines[2] == "Status: implemented" and not lines[4]
        if not shown or not well:
            yield _at(name, 1, "header", "is not the header of an archived record")
            continue
        days.add(shown[1])
        if not _real(shown[1]) or shown[1] < record.day:
            yield _at(name, 4, "date", f"{shown[1]} is not a date on or after {record.day}")
    if len(days) > 1:
        yield _at(record.path, 4, "date", "the two languages carry different dates")


def _real(day: str) -> bool:
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _check_seals(tree: Tree, stored: list[str], files: dict[str, str]) -> Iterator[Finding]:
    base = len(root_of(tree)) + len(ARCHIVE) + 2
    held = {name[base:]: name for name in stored}
    for short, name in held.items():
        if short not in files:
            yield _at(name, 0, "manifest", "is not sealed")
        elif files[short] != seal(tree.raw(name)):
            yield _at(name, 0, "sealed", "differs from its seal")
    for short in files:
        if short not in held:
            yield _at(f"{root_of(tree)}/{ARCHIVE}/{short}", 0, "sealed", "is sealed and gone")


def _check_history(tree: Tree, path: str, files: dict[str, str]) -> Iterator[Finding]:
    ref = os.environ.get("GATES_ARCHIVE_BASE", "HEAD")
    try:
        done = subprocess.run(
            ["git", "show", f"{ref}:./{path}"], cwd=tree.root, capture_output=True, check=False
        )
    except FileNotFoundError:
        return  # without git there is no history to compare with
    before = read_manifest(done.stdout.decode("utf-8", "replace")) if done.returncode == 0 else {}
    for short, value in (before or {}).items():
        if files.get(short) != value:
            yield _at(path, 0, "append-only", f"{short} was sealed in {ref} otherwise")


def _at(name: str, line: int, rule: str, what: str) -> Finding:
    return Finding(name, line, rule, what, RULES[rule])
