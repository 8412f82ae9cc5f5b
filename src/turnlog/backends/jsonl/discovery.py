"""Finding where a session is stored, without parsing any log.

Owns the walk over project folders and a memory of where ids were found, which one stat verifies. When the
working directory is known, only the path it leads to is looked at.
"""

from __future__ import annotations

import os
import stat
import threading
from typing import Final

from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.layout import LOG_NAMES, RESERVED_FOLDER, Encoding, Place
from turnlog.errors import CorruptLogError, UnsupportedFormatError
from turnlog.events.segment import encode_segment

_REMEMBERED: Final = 100_000
"""Places kept in memory; about 200 bytes each."""


class Discovery:
    """Where the sessions of one root are."""

    def __init__(self, files: FileLayer, root: str) -> None:
        self._files = files
        self._root = root
        self._known: dict[str, Place] = {}
        self._lock = threading.Lock()
        self.walks = 0
        """Walks over all project folders so far."""

    def remember(self, place: Place) -> None:
        """Keep in mind where a session was found."""
        with self._lock:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[place.segment] = place

    def forget(self, segment: str) -> None:
        """Drop what is remembered of one session."""
        with self._lock:
            self._known.pop(segment, None)

    def known(self, segment: str) -> Place | None:
        """Return where a session was last found, without looking again."""
        return self._known.get(segment)

    def find(self, session_id: str) -> Place | None:
        """Find a session by its id alone.

        Returns:
            Its place, or None when no project holds it.

        Raises:
            CorruptLogError: The id is stored twice: in two encodings or in two projects.
            UnsupportedFormatError: The id exists only in the single-file layout of early releases.
            InvalidSessionIdError: No session can have this id (S1).
            OSError: The root cannot be read.
        """
        segment = encode_segment(session_id)
        with self._lock:
            known = self._known.get(segment)
        if known is not None and self._logs_in(known.folder) == [known.encoding]:
            return known
        self.forget(segment)
        projects = self.projects()
        found = [place for project in projects for place in self._in_project(project, segment)]
        if not found:
            self._refuse_flat(session_id, segment, projects)
            return None
        place = self._single(session_id, found)
        self.remember(place)
        return place

    def at(self, session_id: str, project: str) -> Place | None:
        """Find a session whose project folder is known; looks at that one path only.

        Raises:
            CorruptLogError: The session is stored there in both encodings.
        """
        found = self._in_project(project, encode_segment(session_id))
        if not found:
            return None
        place = self._single(session_id, found)
        self.remember(place)
        return place

    def projects(self) -> list[str]:
        """Return the names of the project folders, sorted; an absent root has none."""
        self.walks += 1
        try:
            with self._files.folder(self._root) as folder:
                entries = self._files.entries(folder)
        except FileNotFoundError:
            return []
        return sorted(entry.name for entry in entries if entry.is_folder and entry.name != RESERVED_FOLDER)

    def _in_project(self, project: str, segment: str) -> list[Place]:
        folder = os.path.join(self._root, project, segment)
        try:
            if not stat.S_ISDIR(self._files.path_status(folder).st_mode):
                return []  # a symbolic link, too, is no session folder (S1)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [Place(self._root, project, segment, encoding) for encoding in self._logs_in(folder)]

    def _logs_in(self, folder: str) -> list[Encoding]:
        """Return the encodings in which a log is in a session folder."""
        return [encoding for encoding, name in LOG_NAMES.items() if self._exists(os.path.join(folder, name))]

    def _exists(self, path: str) -> bool:
        try:
            self._files.path_status(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _single(self, session_id: str, found: list[Place]) -> Place:
        if len(found) > 1:
            both = " and ".join(os.path.relpath(place.log_path, self._root) for place in found[:2])
            raise CorruptLogError(
                session_id=session_id,
                reason=f"the session is stored twice, as {both}; move one of them away",
                kind="duplicate",
                path=found[0].log_path,
            )
        return found[0]

    def _refuse_flat(self, session_id: str, segment: str, projects: list[str]) -> None:
        for project in projects:
            for name in (f"{segment}.jsonl", f"{segment}.jsonl.zstd"):
                path = os.path.join(self._root, project, name)
                if self._exists(path):
                    raise UnsupportedFormatError(
                        session_id=session_id,
                        found="one file per session, without a folder",
                        supported=0,
                        direction="older",
                        path=path,
                    )
