"""Picks the prose out of Python source: comments and docstrings, with their lines."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield `(line, text)` of every comment and docstring line; nothing for source that does not parse."""
    try:
        module = ast.parse(source)
        tokens = [
            t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT
        ]
    except (SyntaxError, tokenize.TokenError, ValueError):
        return  # the linter reports source that does not parse
    for token in tokens:
        yield token.start[0], token.string
    lines = source.splitlines()
    for node in ast.walk(module):
        if not isinstance(node, Definition):
            continue
        place = docstring_node(node)
        if place is not None:
            for number in range(place.lineno, (place.end_lineno or place.lineno) + 1):
                yield number, lines[number - 1]


def docstring_node(node: Definition) -> ast.Expr | None:
    """Return the expression that is the definition's docstring, if there is one."""
    first = node.body[0] if node.body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        return first
    return None
