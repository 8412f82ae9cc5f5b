"""Changes of files inside tool calls, found by their shape and shown line by line.

Owns finding and comparing. Nothing here trusts a tool: what has another shape is no diff.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

MAX_LINES: Final = 1000
"""Lines of either side up to which two texts are compared; longer ones are shown one after the other."""

Kind = Literal["added", "removed", "kept", "place"]

_PAIRS: Final = (("oldText", "newText"), ("old_string", "new_string"), ("old_str", "new_str"))
_PATHS: Final = ("path", "file_path", "filePath")


@dataclass(frozen=True, slots=True)
class FileDiff:
    """One changed file."""

    path: str
    lines: list[tuple[Kind, str]]
    """Each line without its marker."""


def find_diffs(arguments: object, meta: object, result: str) -> list[FileDiff]:
    """Find what a tool call changed.

    Args:
        arguments: The parsed arguments, or None.
        meta: What the tool left for whoever shows the call.
        result: The text of its result.

    Returns:
        The changed files, from the first of these places that names any.
    """
    for place in (meta, arguments):
        found = list(_stated(place))
        if found:
            return found
    if "\n@@ " in f"\n{result}" and ("--- " in result or result.startswith("diff ")):
        return [FileDiff("", _unified(result))]
    return []


def _stated(place: object) -> Iterator[FileDiff]:
    if not isinstance(place, Mapping):
        return
    listed = place.get("diffs", place.get("edits"))
    for entry in [place, *(listed if isinstance(listed, list) else [])]:
        diff = _pair(entry, place)
        if diff is not None:
            yield diff
    text = place.get("diff", place.get("patch"))
    if isinstance(text, str) and "@@" in text:
        yield FileDiff(_path(place, place), _unified(text))


def _pair(entry: object, around: Mapping[str, Any]) -> FileDiff | None:
    if not isinstance(entry, Mapping):
        return None
    for old_key, new_key in _PAIRS:
        old, new = entry.get(old_key, ""), entry.get(new_key)
        if isinstance(new, str) and (isinstance(old, str) or old is None):
            return FileDiff(_path(entry, around), compare(old or "", new))
    return None


def _path(entry: Mapping[str, Any], around: Mapping[str, Any]) -> str:
    for place in (entry, around):
        for key in _PATHS:
            if isinstance(place.get(key), str):
                return str(place[key])
    return ""


def compare(old: str, new: str) -> list[tuple[Kind, str]]:
    """Compare two texts line by line.

    Args:
        old: The text before.
        new: The text after.

    Returns:
        Lines with three lines of surroundings; every line of both where they are too long to compare.
    """
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MAX_LINES:
        removed: list[tuple[Kind, str]] = [("removed", line) for line in before]
        return removed + [("added", line) for line in after]
    return _unified("\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:]))


def _unified(text: str) -> list[tuple[Kind, str]]:
    rows: list[tuple[Kind, str]] = []
    for line in text.splitlines():
        if line.startswith(("@@", "diff ", "index ", "--- ", "+++ ")):
            rows.append(("place", line))
        elif line.startswith("+"):
            rows.append(("added", line[1:]))
        elif line.startswith("-"):
            rows.append(("removed", line[1:]))
        else:
            rows.append(("kept", line[1:] if line.startswith(" ") else line))
    return rows
