"""The SQL of the store, for one schema.

Owns the text of every statement but the schema's own steps. A statement that writes a session names the
epoch and the seq it expects; a conflict is a result without a row, never an error, so that it does not
undo what shares its connection.
"""

from __future__ import annotations

from typing import Final

NOW: Final = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
"""Milliseconds on the database's clock."""

PAGE_FRAMES: Final = 256
"""Most frames per query where a log is walked."""
PAGE_BYTES: Final = 8 << 20
"""Bytes of frames after which such a query ends."""
PAGE_SESSIONS: Final = 256
"""Sessions per query where the store is walked."""

_LAZILY: Final = "set_config('synchronous_commit', 'off', true)"
"""Lets the transaction of one session return before its sync; the commit at the end of the group, which is
synchronous, flushes and replicates everything before it in the server's log, and only then is anything
acknowledged."""

_APPEND: Final = f"""
with log as (
    update turnlog.sessions
    set next_seq = %(end)s, revision = revision + 1, size = size + %(size)s, last_write = {NOW},
        summary = %(summary)b, summary_crc = %(summary_crc)s
    where segment = %(segment)s and epoch = %(epoch)s and next_seq = %(first)s
        and (%(header)b::bytea is null or header = %(header)b)
    returning number, epoch, revision
), stored as (
    insert into turnlog.frames (session, first_seq, last_seq, frame)
    select number, %(first)s, %(end)s - 1, %(frame)b from log
)
select number, epoch, revision, {_LAZILY} from log"""

_CREATE: Final = f"""
with log as (
    insert into turnlog.sessions
        (segment, header, header_crc, epoch, writer, next_seq, revision, size, last_write,
        summary, summary_crc)
    values (%(segment)s, %(header)b, %(header_crc)s, {NOW}, %(writer)s, %(end)s, 1, %(size)s, {NOW},
        %(summary)b, %(summary_crc)s)
    on conflict (segment) do nothing
    returning number, epoch, revision
), stored as (
    insert into turnlog.frames (session, first_seq, last_seq, frame)
    select number, 0, %(end)s - 1, %(frame)b from log where %(end)s > 0
)
select number, epoch, revision, {_LAZILY} from log"""

_DELETE: Final = f"""
with log as (
    delete from turnlog.sessions where segment = %(segment)s and epoch = %(epoch)s
    returning number, epoch, revision
), gone as (
    delete from turnlog.frames using log where frames.session = log.number
)
select number, epoch, revision, {_LAZILY} from log"""

_LEASE: Final = f"""
insert into turnlog.writers as held (writer, owner, expires)
values (%(writer)s, %(owner)s, {NOW} + %(lease)s)
on conflict (writer) do update set expires = excluded.expires"""

_NOTIFY: Final = f"select pg_notify(%(channel)s, %(payload)s), {_LAZILY}"

_LOOK: Final = f"""
select s.epoch, s.writer, w.owner, w.expires, {NOW}
from turnlog.sessions s left join turnlog.writers w on w.writer = s.writer
where s.segment = %(segment)s"""

_TAKE: Final = f"""
update turnlog.sessions
set epoch = greatest(epoch, {NOW}) + 1, writer = %(writer)s
where segment = %(segment)s and epoch = %(epoch)s
returning epoch, {_LAZILY}"""

_RELEASE: Final = f"""
update turnlog.sessions set epoch = epoch + 1, writer = null
where segment = %(segment)s and epoch = %(epoch)s
returning epoch, {_LAZILY}"""

_RELEASE_DOUBTFUL: Final = """
update turnlog.sessions set epoch = epoch + 1, writer = null
where segment = any(%(segments)s) and writer = %(writer)s"""

_END_LEASE: Final = f"delete from turnlog.writers where writer = %(writer)s or expires < {NOW} - %(age)s"

_SESSION: Final = """
select number, header, header_crc, epoch, writer, next_seq, revision, size, (
    select last_seq from turnlog.frames where session = number order by first_seq desc limit 1)
from turnlog.sessions where segment = %(segment)s"""

_REVISION: Final = "select number, revision from turnlog.sessions where segment = %(segment)s"

_PAGE: Final = f"""
select first_seq, last_seq, frame from (
    select first_seq, last_seq, frame,
        sum(octet_length(frame)) over (order by first_seq) - octet_length(frame) as before
    from (
        select first_seq, last_seq, frame from turnlog.frames
        where session = %(session)s and first_seq < %(end)s and first_seq >= $FIRST
        order by first_seq limit {PAGE_FRAMES}
    ) as next
) as sized
where before < {PAGE_BYTES}
order by first_seq"""
"""The next frames, at least one if there is one. Their sizes are known without reading them."""

_FRAMES: Final = _PAGE.replace("$FIRST", "%(first)s")

_FRAMES_AROUND: Final = _PAGE.replace(
    "$FIRST",
    """coalesce((
            select max(first_seq) from turnlog.frames
            where session = %(session)s and first_seq <= %(first)s), 0)""",
)

_LIST: Final = f"""
select s.segment, s.header, s.header_crc, s.number, s.revision, s.next_seq, s.size, s.last_write,
    s.summary, s.summary_crc,
    w.writer, w.owner, w.expires, {NOW},
    f.first_seq, f.last_seq, case when octet_length(f.frame) <= %(window)s then f.frame else ''::bytea end
from turnlog.sessions s
left join turnlog.writers w on w.writer = s.writer
left join lateral (
    select first_seq, last_seq, frame from turnlog.frames
    where session = s.number order by first_seq desc limit 1
) f on true
where s.segment > %(after)s
order by s.segment limit %(limit)s"""


_STORED_BYTES: Final = """
select coalesce(sum(pg_total_relation_size(name::regclass)), 0)::bigint
from (values ('turnlog.sessions'), ('turnlog.frames')) as tables (name)"""

_VACUUM: Final = "vacuum (truncate on) turnlog.sessions, turnlog.frames"


class Statements:
    """The statements with the name of one schema in them.

    Args:
        schema: A name without quotes in it.
    """

    def __init__(self, schema: str) -> None:
        def named(text: str) -> bytes:
            return text.replace("turnlog.", f'"{schema}".').encode()

        self.append = named(_APPEND)
        self.create = named(_CREATE)
        self.delete = named(_DELETE)
        self.lease = named(_LEASE)
        self.notify = named(_NOTIFY)
        self.look = named(_LOOK)
        self.take = named(_TAKE)
        self.release = named(_RELEASE)
        self.release_doubtful = named(_RELEASE_DOUBTFUL)
        self.end_lease = named(_END_LEASE)
        self.session = named(_SESSION)
        self.revision = named(_REVISION)
        self.frames = named(_FRAMES)
        self.frames_around = named(_FRAMES_AROUND)
        self.list = named(_LIST)
        self.stored_bytes = named(_STORED_BYTES)
        self.vacuum = named(_VACUUM)
        self.channel = f"turnlog_{schema}"
