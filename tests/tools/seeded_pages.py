"""Seeded violations of the document and source gates: one good tree per gate, one mutation per rule."""

from __future__ import annotations

from tests.tools.trees import Files

GUIDE = """\
# Guide

## First steps

See [below](#first-steps), [the other page](other.md#second-place), [line two](../src/a.py#L2)
and [the folder](../src).

```md
[not a link](nowhere.md)
```

`[not a link either](nowhere.md)`
"""
PAGES: Files = {
    "docs/guide.md": GUIDE,
    "docs/other.md": '# Other\n\n<a id="second-place"></a>\n\nText.\n',
    "src/a.py": '"""Reads docs/guide.md#first-steps."""\nX = 1\n',
}
LINKS: dict[str, Files] = {
    "target": {"docs/guide.md": GUIDE.replace("other.md#", "Other.md#")},
    "outside": {"docs/guide.md": GUIDE + "\n[up](../../elsewhere.md)\n"},
    "absolute": {"docs/guide.md": GUIDE + "\n[root](/docs/other.md)\n"},
    "fragment": {"docs/guide.md": GUIDE.replace("#second-place", "#third-place")},
    "line": {"docs/guide.md": GUIDE.replace("#L2", "#L20")},
}
REFERENCES: dict[str, Files] = {
    "reference": {"src/a.py": '"""Reads docs/gone.md."""\n'},
    "fragment": {"src/a.py": '"""Reads docs/guide.md#last-steps."""\n'},
}

PROSE_TREE: Files = {
    "README.md": "# It\n\nThe log holds events.\n\n```text\npreviously shown output\n```\n",
    "CHANGELOG.md": "# Changelog\n\n- `open` was renamed to `open_store`, which previously took a path.\n",
    "src/a.py": '"""Holds events."""\n\nTEXT = "previously"  # a string is data, not prose\n',
}
PROSE: dict[str, Files] = {
    "change-narration": {"src/a.py": '"""Holds events; previously it held rows."""\n'},
    "plan": {"README.md": "# It\n\nWindows is not yet supported.\n"},
    "discussion": {"src/a.py": "X = 1  # as discussed in the meeting\n"},
    "machine-path": {"src/a.py": 'ROOT = "/work/main/data"\n'},
    "workplace-word": {"src/a.py": '"""Follows SL 9.5."""\n'},
    "download-address": {"lock.json": '{"resolved": "https://example.org/a.tgz"}\n'},
    "debt-marker": {"src/a.py": "X = 1  # TODO make it two\n"},
}

SOURCE = '''\
"""Types."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A place."""

    x: int
    """Metres to the right."""
    y: int = 0

    def far(self, limit: float) -> bool:
        """Tell whether it is far away."""
        return self.x > limit
'''
SHOWN = """\
# Types

```python type-of=pack.shapes.Point
@dataclass(frozen=True)
class Point:
    x: int  # metres
    y: int = 0

    def far(self, limit: float) -> bool: ...
```
"""
TYPES_TREE: Files = {
    "src/pack/__init__.py": "",
    "src/pack/shapes.py": SOURCE,
    "docs/types.md": SHOWN,
    "pyproject.toml": '[tool.gates.type_blocks]\nsource = "src"\n',
}
TYPES: dict[str, Files] = {
    "unknown": {"docs/types.md": SHOWN.replace("shapes.Point", "shapes.Place")},
    "unparsable": {"docs/types.md": SHOWN.replace("x: int ", "x = = ")},
    "differs": {"src/pack/shapes.py": SOURCE.replace("y: int = 0", "y: float = 0.0")},
    "unmarked": {"docs/types.md": SHOWN.replace(" type-of=pack.shapes.Point", "")},
}

TEST = '''\
def test_it():
    """It holds."""
    assert 1
'''
TESTS_TREE: Files = {"tests/test_a.py": TEST}
DOCSTRINGS: dict[str, Files] = {
    "missing": {"tests/test_a.py": TEST.replace('    """It holds."""\n', "")},
    "long": {"tests/test_a.py": TEST.replace("It holds.", "It holds.\n\n    And\n    so on.\n    ")},
}

SHAPE_TREE: Files = {
    "src/pack/shapes.py": SOURCE,
    "tests/test_a.py": "import pytest\n\n\n@pytest.mark.skip(reason='needs a disk')\ndef test_it(): ...\n",
}
SHAPE: dict[str, Files] = {
    "module-length": {"src/pack/shapes.py": SOURCE + "X = 1\n" * 600},
    "module-name": {"src/pack/utils.py": SOURCE},
    "module-docstring": {"src/pack/shapes.py": "X = 1\n"},
    "function-length": {"src/pack/shapes.py": '"""Long."""\n\n\ndef f():\n' + "    x = 1\n" * 61},
    "exemption-reason": {"src/pack/shapes.py": '"""A."""\n\nimport os  # ' + "noqa: F401\n"},
    "skip-reason": {"tests/test_a.py": "import pytest\n\n\n@pytest.mark.skip\ndef test_it(): ...\n"},
}
