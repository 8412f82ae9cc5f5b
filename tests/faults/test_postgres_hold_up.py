"""The hold-up drill: a writer that was held up is taken over when its lease has run out, and fenced (W1)."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.faults.lanes import SOAK, missing, report
from tests.postgres_cluster import PORT, Cluster, fresh_schema, shared_cluster

ROUNDS = 100 if SOAK else 25
"""Rounds on one host, and as many on two."""
POSITIONS = ("before-send", "in-group", "after-reply")
ROOT = Path(__file__).parents[2]


class Writer:
    """A writer process; see `postgres_writers`."""

    def __init__(self, role: str, url: str, prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.faults.postgres_writers", role, url],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, **what: Any) -> None:
        """Say what to do next."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()

    def told(self) -> dict[str, Any]:
        """Return what it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the writer ended: {self.process.wait()}"
        facts: dict[str, Any] = json.loads(line)
        return facts

    def until_stopped(self) -> None:
        """Wait until it has stopped itself."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the writer was not stopped: status {status}"

    def end(self) -> None:
        """Let it end, or end it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


async def check(url: str, session_id: str, a: dict[str, Any], b: dict[str, Any]) -> None:
    """Check that the log is what A was told is stored, then what B wrote, and nothing else."""
    async with turnlog.open(url) as store:
        loaded = await store.inspect(session_id)
    seqs = [event.seq for event in loaded.events]
    types = [event.type for event in loaded.events]
    assert seqs == list(range(b["acknowledged"]))
    assert b["first"] == a["acknowledged"], "B goes on where A's acknowledged events end"
    assert types[b["first"]] == "session/end-seed"
    assert types[-1] == "turn/end"
    assert a["pending"], "A was not fenced"
    assert a["pending"][0] == a["acknowledged"], "the events that were not written are handed back"


def hold_up(a: Writer, b: Writer, url: str, session_id: str, position: str) -> int:
    """Run one round; return how many events A was told are durable."""
    a.ask(session=session_id, position=position)
    told = a.told()["acknowledged"]
    a.until_stopped()
    b.ask(session=session_id)
    taken = b.told()
    assert taken["refusals"] > 0, "a session was taken before its lease had run out"
    os.kill(a.process.pid, signal.SIGCONT)
    outcome = a.told()
    stored_before = outcome["acknowledged"] > told
    assert stored_before == (position != "before-send")
    asyncio.run(check(url, session_id, outcome, taken))
    return int(outcome["acknowledged"])


def test_a_held_up_writer_is_fenced(capsys: pytest.CaptureFixture[str]) -> None:
    """A stops in the middle of an append, its lease runs out, B appends, A goes on and is fenced."""
    url = shared_cluster().url(schema=fresh_schema())
    a, b = Writer("a", url), Writer("b", url)
    acknowledged = 0
    try:
        for number, position in zip(range(ROUNDS), itertools.cycle(POSITIONS), strict=False):
            acknowledged += hold_up(a, b, url, f"s{number}", position)
    finally:
        a.end()
        b.end()
    note = "every late writer was fenced"
    report(
        "SIGSTOP, takeover, SIGCONT", "postgres", capsys, faults=ROUNDS, acknowledged=acknowledged, note=note
    )


class Network:
    """Three hosts: a server and two clients, each in a network namespace with a line to the server."""

    def __init__(self) -> None:
        self.names = {role: f"turnlog-{role}-{os.getpid()}" for role in ("server", "a", "b")}
        self.address = {"a": "10.77.1.1", "b": "10.77.2.1"}
        """The server's address on each client's line."""

    def __enter__(self) -> Network:
        with ExitStack() as stack:
            for name in self.names.values():
                try:
                    _ip("netns", "add", name)
                except (OSError, subprocess.CalledProcessError):
                    missing("needs network namespaces (root, and the package iproute2)")
                stack.callback(_ip, "netns", "del", name)
            for number, role in enumerate(("a", "b"), 1):
                here, there = f"tl{role}{os.getpid()}", "eth0"
                client, server = self.names[role], self.names["server"]
                _ip(
                    "link",
                    "add",
                    here,
                    "netns",
                    server,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    there,
                    "netns",
                    client,
                )
                _ip("-n", server, "addr", "add", f"10.77.{number}.1/24", "dev", here)
                _ip("-n", client, "addr", "add", f"10.77.{number}.2/24", "dev", there)
                _ip("-n", server, "link", "set", here, "up")
                _ip("-n", client, "link", "set", there, "up")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prefix(self, role: str) -> tuple[str, ...]:
        """Return the command that makes a process run on a client host, with a host name of its own."""
        script = f'hostname host-{role} && exec "$@"'
        return ("ip", "netns", "exec", self.names[role], "unshare", "--uts", "sh", "-c", script, "sh")

    def line(self, role: str, state: str) -> None:
        """Take a client's line up or down."""
        _ip("-n", self.names[role], "link", "set", "eth0", state)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(name="hosts")
def _hosts() -> Iterator[tuple[Network, Cluster, Writer, Writer, str]]:
    """Give a server and two writers on hosts of their own."""
    with Network() as network:
        addresses = ",".join(network.address.values())
        cluster = Cluster({"listen_addresses": addresses}, namespace=network.names["server"])
        rules = cluster.data / "pg_hba.conf"
        rules.write_text(rules.read_text() + "host all all 10.77.0.0/16 trust\n")
        schema = fresh_schema()
        writers = []
        try:
            cluster.start()
            for role in ("a", "b"):
                url = f"postgresql://turnlog@{network.address[role]}:{PORT}/postgres?schema={schema}"
                writers.append(Writer(role, url, network.prefix(role)))
            yield network, cluster, writers[0], writers[1], schema
        finally:
            for writer in writers:
                writer.end()
            cluster.remove()


def test_two_hosts(
    hosts: tuple[Network, Cluster, Writer, Writer, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same with each writer and the server on a host of its own; some rounds lose A's network instead."""
    network, cluster, a, b, schema = hosts
    url = cluster.url(schema=schema)
    acknowledged = 0
    for number, position in zip(range(ROUNDS - 3), itertools.cycle(POSITIONS), strict=False):
        acknowledged += hold_up(a, b, url, f"s{number}", position)
    for number in range(ROUNDS - 3, ROUNDS):
        session_id = f"s{number}"
        a.ask(session=session_id, position="network")
        a.told()
        network.line("a", "down")
        a.ask()
        b.ask(session=session_id)
        taken = b.told()
        assert taken["owner"] == "host-a"
        network.line("a", "up")
        outcome = a.told()
        asyncio.run(check(url, session_id, outcome, taken))
        acknowledged += outcome["acknowledged"]
    note = "writers on hosts of their own; three rounds lose the network instead"
    name = "SIGSTOP, takeover, SIGCONT"
    report(name, "postgres, two hosts", capsys, faults=ROUNDS, acknowledged=acknowledged, note=note)


def test_a_dead_writer_is_taken_over_at_once() -> None:
    """A writer on this host that was killed holds nothing, although its lease has not run out (W1)."""
    url = shared_cluster().url(schema=fresh_schema())
    a, b = Writer("a", url), Writer("b", url)
    try:
        a.ask(session="s", position="before-send")
        told = a.told()["acknowledged"]
        a.until_stopped()
        admin = shared_cluster().admin()
        schema = url.rpartition("schema=")[2]
        admin.execute(f"update {schema}.writers set expires = expires + 3600000".encode())
        b.ask(session="s", report=True)
        assert "refused" in b.told()
        os.kill(a.process.pid, signal.SIGKILL)
        a.process.wait()
        taken = b.told()
        assert taken["first"] == told
        owner = admin.execute(f"select count(*) from {schema}.writers".encode()).fetchone()
        assert owner == (2,)
    finally:
        a.end()
        b.end()
