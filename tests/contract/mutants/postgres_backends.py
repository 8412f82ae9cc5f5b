"""PostgreSQL backends that are wrong in one way each, with the harnesses that run them."""

from __future__ import annotations

from tests.contract.mutants import faults
from tests.contract.postgres_harness import PostgresHarness
from tests.postgres_cluster import fresh_schema
from turnlog.backends.postgres.address import PostgresAddress
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.persistence.backend import PersistenceBackend


class LosesDataOnReopen(PostgresHarness):
    """What one process stored is not there for the next one."""

    def make_backend(self) -> PersistenceBackend:
        self.schema = fresh_schema()
        self.url = self.cluster.url(schema=self.schema, more="&pool=4")
        return super().make_backend()


class EventByEvent(faults.EventByEvent, PostgresBackend):
    """Batches are not atomic."""


class HeaderFirst(faults.HeaderFirst, PostgresBackend):
    """Header and first batch are not stored together."""


class ConstantRevision(faults.ConstantRevision, PostgresBackend):
    """The revision does not follow the log."""


class _OtherStatement(PostgresBackend):
    """Appends with another statement than the right one."""

    def __init__(self, address: PostgresAddress) -> None:
        super().__init__(address)
        text = self._statements.append
        self._statements.append = self.changed(text)
        assert self._statements.append != text

    def changed(self, text: bytes) -> bytes:
        """Return the wrong statement."""
        raise NotImplementedError


class NoSeqCheck(_OtherStatement):
    """Appends whatever comes, wherever the log ends."""

    def changed(self, text: bytes) -> bytes:
        return text.replace(b" and next_seq = %(first)s", b"").replace(
            b"%(frame)b from log",
            b"%(frame)b from log on conflict (session, first_seq) do update set frame = excluded.frame",
        )


class WritesAfterTakeover(_OtherStatement):
    """Refuses a second writer, but lets the first one go on writing after a takeover."""

    def changed(self, text: bytes) -> bytes:
        return text.replace(b" and epoch = %(epoch)s", b" and epoch <> -%(epoch)s")


class IgnoresTheClaim(faults.TakesEveryClaim, WritesAfterTakeover):
    """Gives the claim to everybody and checks nobody's."""
