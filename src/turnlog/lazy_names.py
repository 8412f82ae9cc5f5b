"""Public names of a package that are loaded from their modules when they are first used.

Owns the two module functions that do it (PEP 562). Which names there are is each package's business.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    scope: dict[str, Any], places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and the `__dir__` of a package.

    Args:
        scope: The package's `globals()`; a name is put there once it is loaded.
        places: Module of each name.

    Returns:
        Both functions. The first raises `AttributeError` for a name that is not in `places`.
    """

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {scope['__name__']!r} has no attribute {name!r}")
        scope[name] = getattr(import_module(places[name]), name)
        return scope[name]

    def names() -> list[str]:
        return sorted({*scope, *places})

    return get, names
