"""`Books`: what one coordinator knows, shared by the modules that each do one job with it.

Owns the maps and the questions everybody asks of them: is this id live, owned, closing, open. It awaits
nothing but a retirement and calls no hook except to give a claim back.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from turnlog.errors import SessionBusyError, TurnlogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turnlog.persistence.claim_keeper import ClaimKeeper
    from turnlog.persistence.cursors import Cursors
    from turnlog.persistence.hooks import Hooks
    from turnlog.persistence.id_chains import IdChains
    from turnlog.persistence.lifecycle import Lifecycle
    from turnlog.persistence.preparations import PreparationPool
    from turnlog.session.registry import SessionRegistry
    from turnlog.session.session import Session

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Books:
    """The shared state of one coordinator.

    Attributes:
        hooks: The backend.
        registry: The live sessions.
        chains: Operations by id.
        claims: Claims this process holds.
        pool: Prepared sessions by id.
        cursors: Ends of created and appended sessions that are not live.
        lives: Every lifecycle that has not been forgotten; a retirement that failed leaves it here.
        latest: The lifecycle that a session object is in, as long as that is not forgotten.
        current: The live session of an id; a retiring one is not in it.
        owners: Whose writes the stored log of an id belongs to in this process.
        retirements: The running retirement of an id's last lifecycle.
        waits: Waits for news of a log, ended when the store closes.
        closed: Why nothing is taken any more, or None.
    """

    hooks: Hooks
    registry: SessionRegistry[Any]
    chains: IdChains
    claims: ClaimKeeper
    pool: PreparationPool
    cursors: Cursors
    lives: dict[Lifecycle, None] = field(default_factory=dict)
    latest: dict[Session, Lifecycle] = field(default_factory=dict)
    current: dict[str, Lifecycle] = field(default_factory=dict)
    owners: dict[str, Lifecycle] = field(default_factory=dict)
    retirements: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    waits: set[asyncio.Future[None]] = field(default_factory=set)
    closed: str | None = None

    def check_open(self) -> None:
        """Refuse every call after the end.

        Raises:
            UsageError: The store has been closed, here or by a fork.
        """
        if self.closed is not None:
            raise UsageError(self.closed)

    def busy(self, session_id: str) -> SessionBusyError:
        """Make the error that names this process as the writer."""
        return SessionBusyError(session_id=session_id, owner=self.claims.owner)

    def refuse_owned(self, session_id: str) -> None:
        """Refuse to touch the log of a session that is live here, or not yet drained (W1).

        Raises:
            SessionBusyError: It is; this process is named as the owner.
        """
        if session_id in self.current or session_id in self.owners:
            raise self.busy(session_id)

    def refuse_live(self, session_id: str) -> None:
        """Refuse a session that is live here; one that is being drained may be waited for.

        Raises:
            SessionBusyError: It is live.
        """
        if session_id in self.current:
            raise self.busy(session_id)

    async def run(
        self,
        session_id: str,
        operation: Callable[[], Awaitable[T]],
        *,
        orphaned: Callable[[T], object] | None = None,
    ) -> T:
        """Run a caller's operation on the id's chain; see `IdChains.run`.

        Raises:
            UsageError: The store was closed while the caller waited for something else.
        """
        self.check_open()
        return await self.chains.run(session_id, operation, orphaned=orphaned)

    async def retired(self, session_id: str) -> bool:
        """Wait until no earlier lifecycle of the id is being drained; its failure is not ours.

        Returns:
            Whether there was anything to wait for, so that what was known before is out of date.
        """
        waited = False
        while (task := self.retirements.get(session_id)) is not None and not task.done():
            await asyncio.wait((task,))
            waited = True
        return waited

    async def release_claim(self, session_id: str) -> None:
        """Give an id's claim back unless somebody here still needs it; runs on the id's chain.

        A failure is logged: what was written with the claim is durable nevertheless.
        """
        if session_id in self.owners or self.pool.is_held(session_id):
            return
        try:
            await self.claims.release(session_id)
        except TurnlogError as error:
            logger.warning("session %s: its claim could not be given back: %s", session_id, error)
