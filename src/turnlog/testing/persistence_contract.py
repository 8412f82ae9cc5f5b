"""`PersistenceContract`: the whole contract of `SessionPersistence`, for every implementation of it.

Owns only the joining of its parts. A store without the coordinator runs this suite and no other.
"""

from __future__ import annotations

from turnlog.testing.persistence_append import AppendContract
from turnlog.testing.persistence_read import ReadContract
from turnlog.testing.persistence_repair import RepairContract


class PersistenceContract(AppendContract, ReadContract, RepairContract, abstract=True):
    """Everything a store of sessions promises, whatever it stores them in.

    Subclass it, declare `capabilities`, and provide a `harness` fixture that returns a `Harness`.
    """
