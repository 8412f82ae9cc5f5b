"""PostgreSQL: turnlog beside eventsourcing's recorder on one server, on the same durable work.

Owns the server and this part of the report. turnlog's side of the work is that of `databases`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.databases import SESSIONS, Scale, install_peers, run_job
from bench.measure import Figures, in_turn
from tests.postgres_cluster import PORT, Cluster, bin_folder, fresh_schema

PEER = "eventsourcing PostgreSQL recorder"


def postgres(scale: Scale, place: Path) -> Iterator[Any]:
    """One session and 100 sessions that make a turn of 26 events durable, all at once."""
    from bench.run import Row

    if bin_folder() is None:
        print("no PostgreSQL server is installed; its part is left out", file=sys.stderr)
        return
    python = install_peers()
    cluster = Cluster()
    cluster.start()
    try:
        for sessions in (1, SESSIONS):
            turns = max(2, scale.flushes // (50 if sessions > 1 else 2))

            def run(command: list[str], **args: Any) -> Figures:
                before = _syncs(cluster)
                figures = run_job([*command, json.dumps(args)])
                return {**figures, "syncs": (_syncs(cluster) - before) / figures["flushes"]}

            def ours(_: Path, sessions: int = sessions, turns: int = turns) -> Figures:
                url = cluster.url(schema=fresh_schema())
                return run([sys.executable, "-m", "bench.databases"], url=url, sessions=sessions, turns=turns)

            def peer(_: Path, sessions: int = sessions, turns: int = turns) -> Figures:
                where = {"host": str(cluster.home), "port": PORT, "schema": fresh_schema()}
                return run(
                    [str(python), "-m", "bench.postgres_peer"], **where, sessions=sessions, turns=turns
                )

            contestants: dict[str, Callable[[Path], Figures]] = {"ours": ours, "peer": peer}
            found = in_turn(max(1, scale.runs // 2), contestants, place)
            rates = {who: figures["flushes"] / figures["total_s"] for who, figures in found.items()}
            shown = {
                who: f"{rates[who]:,.0f} flushes/s, {found[who]['syncs']:.2f} syncs each" for who in found
            }
            ratio = rates["ours"] / rates["peer"]
            name = f"{sessions} session{'s' * (sessions > 1)}, flush per 26-event turn, PostgreSQL"
            yield Row(
                name,
                shown["ours"],
                f"{PEER}: {shown['peer']} (both synchronous_commit=on, fsync=on)",
                f"{ratio:.1f} ×",
                "> 1 ×",
                ratio > 1,
            )
    finally:
        cluster.remove()


def _syncs(cluster: Cluster) -> int:
    """Return how often the server has synced its log, once all have reported it."""
    while (
        cluster.admin()
        .execute(
            "select 1 from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
        .fetchall()
    ):
        time.sleep(0.01)
    time.sleep(1.1)  # the server's own processes report once a second
    return cluster.wal_syncs()
