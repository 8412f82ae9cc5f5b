"""Which gates and commands exist and which sets they form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType

from . import (
    gen_rfc_index,
    verify_bilingual,
    verify_doc_refs,
    verify_md_links,
    verify_prose,
    verify_rfc_archive,
    verify_rfc_classification,
    verify_rfc_format,
    verify_source_shape,
    verify_test_docstrings,
    verify_type_blocks,
)
from .finding import Finding
from .tree import Tree

Check = Callable[[Tree], Iterable[Finding]]

MODULES: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        gen_rfc_index,
        verify_bilingual,
        verify_doc_refs,
        verify_md_links,
        verify_prose,
        verify_rfc_archive,
        verify_rfc_classification,
        verify_rfc_format,
        verify_source_shape,
        verify_test_docstrings,
        verify_type_blocks,
    )
}
GATES: dict[str, Check] = {name: module.check for name, module in MODULES.items()}

SETS: dict[str, tuple[str, ...]] = {
    "rfc": (
        "verify_rfc_classification",
        "verify_rfc_format",
        "verify_rfc_archive",
        "gen_rfc_index",
        "verify_bilingual",
    ),
    "docs": ("verify_md_links", "verify_doc_refs", "verify_prose", "verify_type_blocks"),
    "source": ("verify_source_shape", "verify_test_docstrings"),
}
SETS["gates"] = (*SETS["rfc"], *SETS["docs"], *SETS["source"])


def names_in(wanted: Iterable[str], commands: Iterable[str]) -> list[str]:
    """Expand set names to gate and command names, each once, in order.

    Args:
        wanted: Names of gates, commands or sets; `commands` means every command, `all` everything.
        commands: The commands the project's settings declare.

    Raises:
        KeyError: A name is none of these.
    """
    known = list(commands)
    found: list[str] = []
    for name in wanted:
        if name == "all":
            found += [*known, *SETS["gates"]]
        elif name == "commands":
            found += known
        elif name in SETS:
            found += SETS[name]
        elif name in GATES or name in known:
            found.append(name)
        else:
            raise KeyError(name)
    return list(dict.fromkeys(found))
