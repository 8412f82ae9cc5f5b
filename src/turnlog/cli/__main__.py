"""`python -m turnlog.cli` does what `turnlog` does."""

from __future__ import annotations

import sys

from turnlog.cli.main import main

sys.exit(main())
