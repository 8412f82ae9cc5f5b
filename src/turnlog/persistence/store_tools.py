"""The whole-log half of a store: verify, salvage, copy, delete.

Owns their place on `SessionStore` and nothing else; what each does is in the module of its name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from turnlog.errors import UsageError, quote
from turnlog.persistence import copying, erasing, verification
from turnlog.persistence import salvage as salvaging
from turnlog.persistence.store_reader import StoreReader

if TYPE_CHECKING:
    from turnlog.persistence.attachments import AttachmentStore
    from turnlog.persistence.coordinator import PersistenceCoordinator
    from turnlog.persistence.copying import CopiedSession, CopyReport
    from turnlog.persistence.erasing import Erasure
    from turnlog.persistence.live_session import LiveSession
    from turnlog.persistence.salvage import Keep, Salvage
    from turnlog.persistence.verification import Verification
    from turnlog.session.registry import SessionRegistry

Progress = Callable[[int, int], None]
"""Told how many sessions of how many are done."""


class StoreTools(StoreReader):
    """What can be done with whole logs of a store; the base of `SessionStore`."""

    def __init__(
        self,
        coordinator: PersistenceCoordinator,
        registry: SessionRegistry[LiveSession],
        attachments: AttachmentStore,
    ) -> None:
        """Put these parts together.

        Args:
            coordinator: Over the backend, on the same registry.
            registry: The live sessions.
            attachments: The images beside the logs.
        """
        super().__init__(coordinator, registry)
        self.attachments = attachments
        """Images that messages refer to."""

    async def verify(self, session_id: str) -> Verification:
        """Check one stored session to its last byte; never writes (R3).

        Args:
            session_id: A stored session.

        Returns:
            The verdict with every damaged place, every broken rule of L4, quarantine files and missing
            images. Damage is a value here, never an error.

        Raises:
            SessionNotFoundError: Nothing is stored under the id.
            BackendError: The medium failed.
            UsageError: The store is closed.
        """
        _check_id(session_id)
        return await verification.verify(self._coordinator.books, self.attachments, session_id)

    def verify_all(
        self, *, parallel: int = verification.PARALLEL, progress: Progress | None = None
    ) -> AsyncIterator[Verification]:
        """Check every entry of the store, several at a time, in the order of the listing (R3).

        Args:
            parallel: How many at a time; each log is in memory, encoded, while it is looked at.
            progress: Told how many of how many are done.

        Yields:
            A verdict for each entry; one that is no session has the id None.

        Raises:
            BackendError: The store as a whole cannot be read.
            UsageError: `parallel` is below 1, or the store is closed.
        """
        return verification.verify_all(
            self._coordinator.books, self.attachments, parallel=parallel, progress=progress
        )

    async def salvage(
        self,
        session_id: str,
        *,
        to: StoreTools | None = None,
        new_id: str | None = None,
        keep: Keep = "all",
    ) -> Salvage:
        """Copy everything readable out of a damaged log into a new session; the original is only read.

        Every event keeps its seq. A mark of the ignorable type `turnlog/lost` stands for each one that is
        gone, and one that refers to lost events is kept inside a `turnlog/set-aside` event.

        Args:
            session_id: A stored session.
            to: The store of the new session, by default this one.
            new_id: Its id; by default the same one where that is free, else a new UUIDv7.
            keep: `all`, or `prefix` for what stands before the first gap, up to a turn's end.

        Returns:
            What was saved, what is missing and where, and every damaged place.

        Raises:
            SessionNotFoundError: Nothing is stored under the id.
            SessionExistsError: `new_id` is taken.
            InvalidSessionIdError: `new_id` cannot name a session.
            CorruptLogError: The session is stored twice, so that there is not one log to save.
            UnsupportedFormatError: The log has another format version.
            BackendError: A medium failed.
            UsageError: `keep` is neither of the two, `to` is no store, or a store is closed.
        """
        _check_id(session_id)
        if new_id is not None:
            _check_id(new_id)
        target = self if to is None else _checked_store(to)
        return await salvaging.salvage(self._side(), target._side(), session_id, new_id=new_id, keep=keep)

    async def copy(
        self,
        to: StoreTools,
        session_ids: Sequence[str] | None = None,
        *,
        parallel: int = copying.PARALLEL,
        progress: Progress | None = None,
        each: Callable[[CopiedSession], None] | None = None,
    ) -> CopyReport:
        """Copy sessions and their images into another store, under the same ids.

        Rows are carried as they are, so a plain file comes back byte for byte from any store. Each copy is
        read back and compared by digest. A copy that was interrupted is taken up by copying again.

        Args:
            to: The other store.
            session_ids: The sessions, by default all of this store.
            parallel: How many at a time.
            progress: Told how many of how many are done.
            each: Told what became of each as soon as that is known, in order.

        Returns:
            What became of each; one that fails has its error there and does not hold up the others.

        Raises:
            BackendError: This store as a whole cannot be listed.
            UsageError: `to` is this store or none, one of them is closed, `parallel` is below 1, or
                `session_ids` is a single string.
        """
        target = _checked_store(to)
        return await copying.copy_sessions(
            self._side(), target._side(), session_ids, parallel=parallel, progress=progress, each=each
        )

    async def delete(self, session_id: str, *, takeover: bool = False, with_forks: bool = False) -> Erasure:
        """Erase a stored session: its log, everything kept beside it, and images that only it refers to.

        Args:
            session_id: A stored session, damaged ones too.
            takeover: Take it away from another writer first, who is fenced from then on.
            with_forks: Erase the sessions that began with a part of it, too; they are named otherwise.

        Returns:
            What is gone, and whether a reader still holds back remains of it.

        Raises:
            SessionNotFoundError: Nothing is stored under the id.
            SessionBusyError: It is live here, or another writer holds it.
            BackendError: The medium failed; delete again.
            UsageError: The backend cannot delete, or the store is closed.
        """
        _check_id(session_id)
        return await erasing.erase(
            self._coordinator, self.attachments, session_id, takeover=takeover, with_forks=with_forks
        )

    async def forks_of(self, session_id: str) -> tuple[str, ...]:
        """Return the sessions that began with a part of this one, directly or through a fork of it (R3).

        Raises:
            BackendError: The store as a whole cannot be read.
            UsageError: The store is closed.
        """
        _check_id(session_id)
        return await erasing.forks_of(self._coordinator, session_id)

    async def erase_remains(self) -> bool:
        """Try again to overwrite what a deletion had to leave because a reader held it back.

        Returns:
            Whether nothing is left.

        Raises:
            BackendError: The medium failed.
            UsageError: The store is closed.
        """
        return await erasing.erase_remains(self._coordinator)

    def _side(self) -> copying.Side:
        return copying.Side(self._coordinator.books, self.attachments)


def _check_id(session_id: object) -> None:
    if not isinstance(session_id, str):
        raise UsageError(f"a session id is a string, not {quote(session_id)}")


def _checked_store(store: object) -> StoreTools:
    if not isinstance(store, StoreTools):
        raise UsageError(f"the target is an open store, as turnlog.open gives it, not {quote(store)}")
    return store
