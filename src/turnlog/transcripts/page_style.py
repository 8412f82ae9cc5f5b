"""The style sheet of the HTML page: light and dark, wide and narrow, screen and paper.

Owns its text and digest; the looks are in `page.css`. The page names the digest in its content security
policy, so no other style can apply.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

BAR_STEPS: Final = 20
"""Widths that a duration bar can have; classes, because the policy allows no style on an element."""


@cache
def style() -> str:
    """Return the style sheet."""
    return files("turnlog.transcripts").joinpath("page.css").read_text(encoding="utf-8")


@cache
def style_digest() -> str:
    """Return the digest of the style sheet as a content security policy writes it."""
    digest = hashlib.sha256(style().encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
