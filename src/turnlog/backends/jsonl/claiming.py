"""Taking and giving back the write claim of a session, with everything that goes with it (W1, S1).

Owns finding or making the session folder, the refusal of ids that differ only in case, cleaning up after
crashed writers, and erasing a session. The lock itself is in `lock`, its swap in `takeover`.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from turnlog.backends.jsonl.discovery import Discovery
from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.handles import HandlePool
from turnlog.backends.jsonl.layout import (
    LOCK_NAME,
    LOG_NAMES,
    QUARANTINE_NAME,
    SUMMARY_NAME,
    TEMP_NAME,
    project_of,
    segment_of,
)
from turnlog.backends.jsonl.lock import JsonlClaim, take
from turnlog.backends.jsonl.publication import FolderMaker, remove_temporaries
from turnlog.backends.jsonl.takeover import folder_lock, lock_identity, replace_lock, swap_logs
from turnlog.errors import (
    BackendError,
    ClaimOwner,
    InvalidSessionIdError,
    SessionBusyError,
    SessionNotFoundError,
    WriterFencedError,
)
from turnlog.events.header import SessionHeader
from turnlog.persistence.claims import completed

_ATTEMPTS: Final = 3


class Claims:
    """Takes and releases claims for one backend. Methods block; the backend calls them on its threads."""

    def __init__(
        self, files: FileLayer, root: str, discovery: Discovery, folders: FolderMaker, handles: HandlePool
    ) -> None:
        self._files = files
        self._root = root
        self._discovery = discovery
        self._folders = folders
        self._handles = handles

    def claim(
        self, session_id: str, owner: ClaimOwner, *, meta: SessionHeader | None, takeover: bool
    ) -> JsonlClaim:
        """Take the claim of a session; raises as the `claim` hook does."""
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):  # the folder was removed meanwhile: once more
                if meta is not None:
                    parts = (project_of(meta.cwd), segment_of(session_id))
                    with self._folders.opened(parts) as folders:
                        claim = self._claim_in(
                            folders.session, parts, session_id, owner, takeover, folders.is_new
                        )
                else:
                    parts = self._found(session_id)
                    with self._files.folder(self._root, parts) as folder:
                        claim = self._claim_in(folder, parts, session_id, owner, takeover, False)
                self._handles.drop(parts[1])
                return claim
        raise BackendError(
            backend="jsonl",
            reason="the session folder is being removed again and again; try again later",
            path=os.path.join(self._root, *parts),
            wrote_nothing=True,
        )

    def _found(self, session_id: str) -> tuple[str, str]:
        place = self._discovery.find(session_id)
        if place is None:
            raise SessionNotFoundError(session_id=session_id)
        return place.parts

    def _claim_in(
        self,
        folder: int,
        parts: tuple[str, str],
        session_id: str,
        owner: ClaimOwner,
        takeover: bool,
        is_new: bool,
    ) -> JsonlClaim:
        path = os.path.join(self._root, *parts)
        busy = lock_identity(self._files, folder) if takeover else None
        try:
            claim = take(self._files, folder, path, session_id, completed(owner))
        except SessionBusyError:
            if not takeover:
                raise
            with folder_lock(self._files, self._root, parts, session_id):
                claim = replace_lock(self._files, folder, path, session_id, completed(owner), busy)
        claim.is_new = is_new
        if is_new:
            return claim  # nothing is in the folder, and its name is spelt as it was asked for
        try:
            self._refuse_other_case(parts, session_id, folder)
            if claim.swap_pending:
                swap_logs(self._files, folder, claim)
            remove_temporaries(self._files, folder)
        except BaseException:
            claim.release(self._files)
            raise
        return claim

    def _refuse_other_case(self, parts: tuple[str, str], session_id: str, folder: int) -> None:
        """Refuse an id whose folder belongs to an id in another case (S1).

        Only where the file system does not tell case apart, which the lock's own name shows.
        """
        try:
            self._files.path_status(LOCK_NAME.upper(), folder=folder)
        except FileNotFoundError:
            return
        with self._files.folder(self._root, parts[:1]) as project:
            names = {entry.name for entry in self._files.entries(project)}
        if parts[1] not in names:
            raise InvalidSessionIdError(
                session_id=session_id,
                reason="it differs only in case from a stored one, which this file system takes for the same",
            )

    def release(self, claim: JsonlClaim) -> None:
        """Give a claim back; a session that was never stored leaves no folder behind (B1)."""
        parts = _parts_of(claim)
        self._handles.drop(parts[1])
        if claim.is_current(self._files) and not self._has_log(claim.folder):
            with contextlib.suppress(OSError):  # not empty, or busy: then it stays
                self._remove_folder(parts)
        claim.release(self._files)

    def delete(self, claim: JsonlClaim) -> None:
        """Erase everything turnlog keeps of a session, the lock last, and sync the folders above.

        Raises:
            WriterFencedError: The claim was taken over; nothing was removed.
            BackendError: Some file could not be removed; the rest is still there, delete again.
        """
        parts = _parts_of(claim)
        with folder_lock(self._files, self._root, parts, claim.session_id):
            if not claim.is_current(self._files):
                raise WriterFencedError(session_id=claim.session_id)
            self._handles.drop(parts[1])
            self._discovery.forget(parts[1])
            with self._files.folder(self._root, parts) as folder:
                names = {entry.name for entry in self._files.entries(folder)}
                logs = sorted(names & set(LOG_NAMES.values()))
                beside = sorted(name for name in names.difference(logs) if _is_ours(name))
                # The log goes last: as long as anything is left, the session is there to be deleted again.
                for part in (beside, logs):
                    for name in part:
                        self._files.remove(name, folder=folder)
                    if part:
                        self._files.sync(folder)
            self._remove_folder(parts)

    def _remove_folder(self, parts: tuple[str, str]) -> None:
        with self._files.folder(self._root, parts) as folder:
            self._files.remove(LOCK_NAME, folder=folder)
        with self._files.folder(self._root, parts[:1]) as project:
            with contextlib.suppress(OSError):  # somebody else's files are in it: they stay
                self._files.remove_folder(parts[1], folder=project)
            self._files.sync(project)

    def _has_log(self, folder: str) -> bool:
        for name in LOG_NAMES.values():
            with contextlib.suppress(FileNotFoundError):
                self._files.path_status(os.path.join(folder, name))
                return True
        return False


def _parts_of(claim: JsonlClaim) -> tuple[str, str]:
    project, segment = claim.folder.rsplit(os.sep, 2)[-2:]
    return project, segment


def _is_ours(name: str) -> bool:
    return (
        name == SUMMARY_NAME or QUARANTINE_NAME.match(name) is not None or TEMP_NAME.match(name) is not None
    )
