"""The entry point of the `turnlog` command.

Owns the check that the CLI's libraries are installed; everything else happens behind `boundary.run`,
which turns every outcome into one line and an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

MISSING = "turnlog: the command line needs click and rich; install them with: pip install 'turnlog[cli]'"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; those of the process when None.

    Returns:
        The exit code: 0 ok, 1 failed, 2 usage, 3 corrupt, 4 unsupported format, 5 busy, 6 not found,
        130 interrupted by the keyboard.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        import click  # noqa: F401  (only to learn whether it is there)
        import rich  # noqa: F401  (only to learn whether it is there)
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 2
    from turnlog.cli.boundary import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
