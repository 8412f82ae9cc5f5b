"""The runner: `python -m tools.gates [NAME...] [--root DIR]` runs gates and commands in parallel."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from . import commands
from .catalogue import GATES, SETS, names_in
from .finding import Finding, render
from .tree import Tree


def main(argv: list[str] | None = None) -> int:
    """Run the named gates and print the table; return 1 when anything was found, 2 for a wrong name."""
    options = _parser().parse_args(argv)
    tree = Tree(options.root)
    if options.list:
        _print_names(tree)
        return 0
    try:
        names = names_in(options.names or ["gates"], commands.declared(tree))
    except KeyError as error:
        print(f"there is no gate, command or set {error}; `--list` shows them", file=sys.stderr)
        return 2
    results = run_all(options.root, names, options.jobs)
    found = [(name, finding) for name, (findings, _) in results.items() for finding in findings]
    if found:
        print(render(found))
    for name, (findings, seconds) in results.items():
        print(f"{'FAILED' if findings else 'ok':6}  {name}  ({seconds:.1f} s)")
    print(f"{len(names)} gates, {len(found)} findings")
    return 1 if found else 0


def run_all(root: Path, names: list[str], jobs: int) -> dict[str, tuple[list[Finding], float]]:
    """Run gates and commands side by side.

    Args:
        root: The project.
        names: Names from the catalogue or from the project's commands.
        jobs: Gates at once; commands bring their own processes and only wait in threads.

    Returns:
        Per name, in the given order, the sorted findings and the seconds it took.
    """
    outside = [name for name in names if name not in GATES]
    inside = [name for name in names if name in GATES]
    with ThreadPoolExecutor(max(1, len(outside))) as threads, ProcessPoolExecutor(jobs) as processes:
        # Processes first: they are forked, and a fork wants no threads around it.
        pending = {name: processes.submit(_run_gate, root, name) for name in inside}
        pending |= {name: threads.submit(_run_command, root, name) for name in outside}
        return {name: pending[name].result() for name in names}


def _run_gate(root: Path, name: str) -> tuple[list[Finding], float]:
    start = time.perf_counter()
    return sorted(GATES[name](Tree(root))), time.perf_counter() - start


def _run_command(root: Path, name: str) -> tuple[list[Finding], float]:
    start = time.perf_counter()
    return sorted(commands.run(Tree(root), name)), time.perf_counter() - start


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gates", description="Run gates on a project and print what to mend."
    )
    parser.add_argument("names", nargs="*", help="gates, commands or sets; default: gates")
    parser.add_argument("--root", type=Path, default=Path(), help="the project; default: the current folder")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="gates at once")
    parser.add_argument("--list", action="store_true", help="show the names and stop")
    return parser


def _print_names(tree: Tree) -> None:
    for name, members in SETS.items():
        print(f"{name}: {', '.join(members)}")
    print(f"commands: {', '.join(commands.declared(tree)) or 'none declared'}")
    print("all: commands, gates")


if __name__ == "__main__":
    sys.exit(main())
