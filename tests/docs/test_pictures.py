"""The pictures show what the commands print."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import pictures


def test_pictures_are_current(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawn again from the real programs, each picture is the one that is kept."""
    monkeypatch.setattr(sys, "argv", ["pictures", "--check"])
    assert pictures.main() == 0, capsys.readouterr().out


def test_an_old_picture_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A picture that shows something else is named, with the command that draws it anew."""
    (tmp_path / "interrupted.svg").write_text("<svg/>", encoding="utf-8")
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pictures", "--check"])
    assert pictures.main() == 1
    assert (
        "interrupted.svg is not what the commands print; run python -m tools.pictures"
        in capsys.readouterr().out
    )
