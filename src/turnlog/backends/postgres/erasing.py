"""Taking deleted rows out of the tables: what a deletion leaves until somebody vacuums.

Owns one vacuum and the question whether an old snapshot still holds rows back. The server's write-ahead log,
its standbys and its backups are out of reach.
"""

from __future__ import annotations

from typing import Final

from turnlog.backends.postgres.connecting import Connections
from turnlog.backends.postgres.link import Link
from turnlog.backends.postgres.statements import Statements

_HOLDERS: Final = """
select exists (
    select from pg_stat_activity
    where backend_xmin is not null and pid <> pg_backend_pid() and datname = current_database()
)"""


async def vacuum(connections: Connections, statements: Statements) -> bool:
    """Remove deleted rows from both tables.

    Args:
        connections: The store's.
        statements: The SQL of its schema.

    Returns:
        True when nothing held them back; False while another transaction can still see them.

    Raises:
        BackendError: The server cannot be reached or refused.
    """

    async def size(link: Link) -> int:
        found = await (await link.execute(statements.stored_bytes)).fetchone()
        return 0 if found is None else int(found[0])

    async def held(link: Link) -> bool:
        found = await (await link.execute(_HOLDERS)).fetchone()
        return found is None or bool(found[0])

    room = await connections.read(size, empty=-1)
    if room < 0:
        return True
    async with connections.use(room) as link:
        was_held = await held(link)
        await link.execute(statements.vacuum)
        return not was_held
