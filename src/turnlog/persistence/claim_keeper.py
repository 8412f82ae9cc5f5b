"""`ClaimKeeper`: the write claims this process holds, one per id, taken, renewed and given back (W1).

Owns the books and the renewal task. Callers run on the id's chain, so that no two of them meet over one
claim. What a claim is, and whether it still counts, is the backend's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from turnlog.errors import ClaimOwner, TurnlogError

if TYPE_CHECKING:
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.hooks import Hooks

logger = logging.getLogger(__name__)

RENEWAL_PERIOD = 10.0
"""Seconds between renewals; leases of backends that have them are a small multiple of it."""


class ClaimKeeper:
    """The claims of one coordinator.

    Args:
        hooks: The backend.
        owner: Facts about this process.
        period: Seconds between renewals.
        sleep: Waits between renewals.
    """

    def __init__(
        self,
        hooks: Hooks,
        owner: ClaimOwner,
        *,
        period: float = RENEWAL_PERIOD,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.owner = owner
        self._hooks = hooks
        self._period = period
        self._sleep = sleep
        self._claims: dict[str, object] = {}
        self._renewer: asyncio.Task[None] | None = None
        self._failing = False

    def __len__(self) -> int:
        return len(self._claims)

    def holds(self, session_id: str) -> bool:
        """Tell whether this process holds the claim of an id; always so where there are no claims."""
        return not self._hooks.has_claims or session_id in self._claims

    def get(self, session_id: str) -> object | None:
        """Return the claim that is held for an id, or None."""
        return self._claims.get(session_id)

    async def take(
        self, session_id: str, *, meta: SessionHeader | None = None, takeover: bool = False
    ) -> object | None:
        """Return the claim of an id, taking it if it is not held yet.

        Args:
            session_id: The id.
            meta: The header of a session that is not stored yet.
            takeover: Take it away from another writer.

        Returns:
            The claim, or None where the backend has none.

        Raises:
            SessionBusyError: Another writer holds it.
        """
        if not self._hooks.has_claims:
            return None
        if (held := self._claims.get(session_id)) is not None:
            return held
        claim = await self._hooks.claim(session_id, self.owner, meta=meta, takeover=takeover)
        self._claims[session_id] = claim
        if self._hooks.has_renewal and self._renewer is None:
            self._renewer = asyncio.get_running_loop().create_task(self._renew())
        return claim

    async def release(self, session_id: str) -> None:
        """Give the claim of an id back, if one is held; it is out of the books even if that fails."""
        claim = self._claims.pop(session_id, None)
        if claim is not None:
            await self._hooks.release(claim)

    async def aclose(self) -> list[Exception]:
        """Stop renewing and give every claim back.

        Returns:
            What failed; the other claims were given back nevertheless.
        """
        if self._renewer is not None:
            self._renewer.cancel()
            await asyncio.wait((self._renewer,))
            self._renewer = None
        failures: list[Exception] = []
        for session_id in list(self._claims):
            try:
                await self.release(session_id)
            except TurnlogError as error:
                failures.append(error)
        return failures

    def forget(self) -> None:
        """Drop the books in a forked child; the parent still holds the claims."""
        self._claims.clear()
        self._renewer = None

    async def _renew(self) -> None:
        while True:
            await self._sleep(self._period)
            claims = list(self._claims.values())
            if not claims:
                continue
            # Shielded: stopping the renewer must not cut a hook in half.
            renewal = asyncio.ensure_future(self._hooks.renew(claims))
            try:
                await asyncio.shield(renewal)
            except asyncio.CancelledError:
                await asyncio.wait((renewal,))
                raise
            except TurnlogError as error:
                if not self._failing:
                    logger.warning("claims could not be renewed and may be lost: %s", error)
                self._failing = True
            else:
                self._failing = False
