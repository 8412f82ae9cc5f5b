"""The summary as its writer keeps it: what a reader finds after each of several writes, what each costs."""

from __future__ import annotations

from pathlib import Path

from tests.unit.backends.logs import META, FailingFiles
from turnlog.backends.jsonl.layout import SUMMARY_NAME, place_of
from turnlog.backends.jsonl.summary_file import SummaryFile, read_summary
from turnlog.persistence.backend import LogSummary


def _titles(files: FailingFiles, file: SummaryFile, folder: Path, *titles: str) -> list[str | None]:
    """Write a summary per title; return the titles that a reader finds after each."""
    found = []
    for turns, title in enumerate(titles):
        file.write(files, META, f"r-{turns}", LogSummary(turns=turns, title=title))
        project = files.open_folder(str(folder.parent))
        stamped = read_summary(files, project, folder.name, f"r-{turns}")
        files.close(project)
        found.append(stamped.summary.title if stamped is not None else None)
    return found


def test_a_shorter_summary_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    """B4: each write covers what the last one has left, in one call, and is whole JSON by itself."""
    place = place_of(str(tmp_path), META, "none")
    folder = Path(place.folder)
    folder.mkdir(parents=True)
    files = FailingFiles()
    file = SummaryFile(place)
    titles = ("long " * 20, "short", "somewhat longer", "x" * 400, "s")
    assert _titles(files, file, folder, *titles) == list(titles)
    assert [files.calls.count(call) for call in ("write_at", "truncate")] == [5, 1]
    file.close(files)
    file.close(files)
    assert _titles(files, SummaryFile(place), folder, "again") == ["again"]  # cuts what was longer
    assert len((folder / SUMMARY_NAME).read_bytes()) < 400


def test_a_title_that_the_file_cannot_hold_leaves_the_last_one(tmp_path: Path) -> None:
    """B4: a lone surrogate is not written; the stamp of what is there fits the log no more."""
    place = place_of(str(tmp_path), META, "none")
    folder = Path(place.folder)
    folder.mkdir(parents=True)
    files = FailingFiles()
    assert _titles(files, SummaryFile(place), folder, "good", "\ud800") == ["good", None]
