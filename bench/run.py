"""`make bench`: turnlog beside the floor and the original, ratios from one run, kept in RESULTS.md.

Owns the list of comparisons, their bars and the report. Usage: python -m bench.run [--quick] [--only WORD]
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.databases import databases
from bench.exports import FORMS
from bench.measure import Figures, in_turn, ours, theirs
from bench.postgres import postgres
from tests.interop.peer_process import install_packages

RESULTS = Path(__file__).parent / "RESULTS.md"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    job: str
    ours: str
    rival: str
    ratio: str
    bar: str
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work a run does."""

    runs: int
    chunks: int
    flushes: int
    sessions: int
    sizes: tuple[int, ...]
    listed: int


FULL = Scale(
    runs=5,
    chunks=300_000,
    flushes=1000,
    sessions=300,
    sizes=(1_000, 10_000, 100_000, 1_300_000),
    listed=10_000,
)
QUICK = Scale(runs=2, chunks=60_000, flushes=200, sessions=60, sizes=(1_000, 10_000), listed=500)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def _log_bytes(folder: Path) -> int:
    """Bytes of all logs below a folder."""
    return sum(log.stat().st_size for log in folder.glob("*/*/session.jsonl*"))


def rivals(job: str, their_job: str | None = None, **args: Any) -> dict[str, Callable[[Path], Figures]]:
    """The same job for turnlog and the original, each in its own folder unless `args` names a root."""

    def mine(folder: Path) -> Figures:
        return {**ours(job, **{"root": str(folder), **args}), "bytes": _log_bytes(folder)}

    def other(folder: Path) -> Figures:
        return {**theirs(their_job or job, **{"root": str(folder), **args}), "bytes": _log_bytes(folder)}

    return {"ours": mine, "dsh": other}


def producer(scale: Scale, place: Path) -> Iterator[Row]:
    """Cost of one chunk append, and streaming through write-behind with 1 and 100 sessions."""
    cost = in_turn(scale.runs, {"ours": lambda _: ours("append", events=scale.chunks)}, place)["ours"]
    rate = 1e9 / cost["ns_per_event"]
    shown = f"{cost['ns_per_event']:.0f} ns ({rate:,.0f}/s)"
    yield Row("append of a chunk event, producer side", shown, "–", "–", "≥ 300,000/s", rate >= 300_000)
    for sessions in (1, 100):
        for compression in ("none", "zstd"):
            job = rivals("stream", compression=compression, sessions=sessions, events=scale.chunks)
            found = in_turn(scale.runs, job, place)
            yield from _stream_rows(found, scale.chunks, sessions, compression)


def _stream_rows(found: dict[str, Figures], events: int, sessions: int, compression: str) -> Iterator[Row]:
    mine, other = found["ours"], found["dsh"]
    name = f"{events:,} chunk events, {sessions} session{'s' if sessions > 1 else ''}, {compression}"
    for key, side in (("producer_s", "producer side"), ("total_s", "until all is durable")):
        ratio = other[key] / mine[key]
        yield Row(
            f"{name}, {side}",
            f"{events / mine[key]:,.0f}/s",
            f"dsh {events / other[key]:,.0f}/s",
            f"{ratio:.1f} ×",
            "≥ 4 ×" if key == "producer_s" else "–",
            ratio >= 4 if key == "producer_s" else None,
        )
    if sessions == 1:
        # A batch is what one write window held, so the number of batches, and with it the size, varies.
        share = mine["bytes"] / other["bytes"]
        means = [f"{figures['bytes'] / events:.4f} B" for figures in (mine, other)]
        part, met = f"{share:.2f} ×", share <= 1
        yield Row(f"{name}, bytes per event", means[0], f"dsh {means[1]}", part, "≤ 1 ×", met)


def _beside_floors(args: dict[str, Any], folder: Path) -> Figures:
    return ours("beside_floors", root=str(folder), **args)


def flushing(scale: Scale, place: Path) -> Iterator[Row]:
    """One event per flush against both floors and the original; 100 sessions flushing per turn."""
    for compression in ("none", "zstd"):
        job = rivals("single", compression=compression, events=scale.flushes)
        args = {"compression": compression, "events": scale.flushes}
        job["floors"] = partial(_beside_floors, args)
        found = in_turn(scale.runs, job, place)
        mine, floor, other = found["ours"]["p50_s"], found["floors"], found["dsh"]["p50_s"]
        name = f"one event per flush, {compression}, p50, against"
        near = floor["p50_s"]
        hop, bare = near / floor["hop_s"], near / floor["bare_s"]
        over = _ms(floor["hop_s"])
        yield Row(f"{name} the floor through a hop", _ms(near), over, f"{hop:.2f} ×", "≤ 1.25 ×", hop <= 1.25)
        yield Row(f"{name} the bare floor", _ms(near), _ms(floor["bare_s"]), f"{bare:.2f} ×", "–")
        yield Row(f"{name} the original", _ms(mine), f"dsh {_ms(other)}", f"{other / mine:.1f} ×", "–")
    for compression, bar in (("none", 4), ("zstd", 8)):
        job = rivals("turns", compression=compression, sessions=100, turns=max(2, scale.flushes // 50))
        found = in_turn(scale.runs, job, place)
        rates = {who: figures["flushes"] / figures["total_s"] for who, figures in found.items()}
        ratio = rates["ours"] / rates["dsh"]
        yield Row(
            f"100 sessions, flush per 26-event turn, {compression}",
            f"{rates['ours']:,.0f} flushes/s",
            f"dsh {rates['dsh']:,.0f}/s",
            f"{ratio:.1f} ×",
            f"≥ {bar} ×",
            ratio >= bar,
        )


def creating(scale: Scale, place: Path) -> Iterator[Row]:
    """Create a session and make its first event durable."""
    for compression in ("none", "zstd"):
        found = in_turn(scale.runs, rivals("create", compression=compression, sessions=scale.sessions), place)
        mine, other = found["ours"]["p50_s"], found["dsh"]["p50_s"]
        name = f"create + first durable append, {compression}, p50"
        yield Row(name, _ms(mine), f"dsh {_ms(other)}", f"{other / mine:.1f} ×", "≥ 3 ×", other / mine >= 3)


def reading(scale: Scale, place: Path) -> Iterator[Row]:
    """Restore sessions of growing length, and read the end of a long one."""
    idle = ours("start")["peak_rss"]
    for compression in ("none", "zstd"):
        for events in scale.sizes:
            with tempfile.TemporaryDirectory(dir=place) as root:
                ours("fill", root=root, compression=compression, id="big", events=events)
                runs = scale.runs if events <= 100_000 else max(1, scale.runs // 2)
                found = in_turn(runs, rivals("inspect", root=root, compression=compression, id="big"), place)
                yield from _restore_rows(found, events, compression, idle)
                if events == 100_000:
                    last = int(found["ours"]["events"]) - 50
                    job = rivals("tail", root=root, compression=compression, id="big", seq=last)
                    tails = in_turn(scale.runs, job, place)
                    mine, other = tails["ours"]["total_s"], tails["dsh"]["total_s"]
                    name = f"last 50 of 100,000 events, {compression}"
                    yield Row(
                        name, _ms(mine), f"dsh {_ms(other)}", f"{other / mine:.0f} ×", "≤ 5 ms", mine <= 0.005
                    )


def _restore_rows(found: dict[str, Figures], events: int, compression: str, idle: float) -> Iterator[Row]:
    mine, other = found["ours"], found["dsh"]
    name = f"inspect {events:,} events, {compression}"
    part = mine["total_s"] / other["total_s"]
    long, longest = events >= 100_000, events > 1_000_000
    yield Row(
        name,
        _ms(mine["total_s"]),
        f"dsh {_ms(other['total_s'])}",
        f"{part:.2f} ×",
        "≤ 0.25 ×" if long else "–",
        part <= 0.25 if long else None,
    )
    share = mine["peak_rss"] / other["peak_rss"]
    yield Row(
        f"{name}, peak memory",
        f"{mine['peak_rss'] / MIB:.0f} MiB ({(mine['peak_rss'] - idle) / MIB:.0f} above an idle turnlog)",
        f"dsh {other['peak_rss'] / MIB:.0f} MiB",
        f"{share:.2f} ×",
        "≤ 0.15 ×" if longest else "–",
        share <= 0.15 if longest else None,
    )


def listing(scale: Scale, place: Path) -> Iterator[Row]:
    """List many sessions, cold and the first page warm."""
    for compression in ("none", "zstd"):
        with tempfile.TemporaryDirectory(dir=place) as root:
            ours("fill_many", root=root, compression=compression, sessions=scale.listed)
            job = rivals("listing", "list", root=root, compression=compression)
            found = in_turn(max(1, scale.runs // 2), job, place)
            mine, other = found["ours"], found["dsh"]
            part = mine["total_s"] / other["total_s"]
            name = f"list {scale.listed:,} sessions, {compression}, new process"
            beside = f"dsh {_ms(other['total_s'])}"
            yield Row(name, _ms(mine["total_s"]), beside, f"{part:.2f} ×", "≤ 0.1 ×", part <= 0.1)
            name = f"first page of {scale.listed:,}, {compression}, warm"
            yield Row(name, _ms(mine["page_s"]), "–", "–", "≤ 150 ms", mine["page_s"] <= 0.15)


def exporting(scale: Scale, place: Path) -> Iterator[Row]:
    """Export a long session to each form: speed by the bytes of the log, memory beside merely reading it."""
    events = max(size for size in scale.sizes if size <= 100_000)
    with tempfile.TemporaryDirectory(dir=place) as root:
        args = {"root": root, "compression": "zstd", "id": "big"}
        ours("export_fill", events=events, **args)

        def loading(_: Path) -> Figures:
            return ours("export_load", **args)

        def export_to(form: str) -> Callable[[Path], Figures]:
            return lambda _: ours("export_one", form=form, **args)

        found = in_turn(
            max(1, scale.runs // 2), {"load": loading, **{form: export_to(form) for form in FORMS}}, place
        )
        read = found["load"]
        for form in FORMS:
            mine = found[form]
            speed = mine["log_bytes"] / mine["total_s"] / 1e6
            more = (mine["peak_rss"] - read["peak_rss"]) / MIB
            yield Row(
                f"export {events:,} events ({mine['log_bytes'] / 1e6:.1f} MB) to {form}",
                f"{speed:.0f} MB/s ({_ms(mine['total_s'])}), peak {mine['peak_rss'] / MIB:.0f} MiB",
                f"reading it alone {_ms(read['total_s'])}, the export {more:+.0f} MiB",
                "–",
                "–",
            )


PARTS = {
    part.__name__: part
    for part in (producer, flushing, creating, reading, listing, exporting, databases, postgres)
}


def report(rows: list[Row], command: str) -> str:
    """The report as Markdown."""
    marks = {True: "yes", False: "**no**", None: "–"}
    head = [
        "# Bench results",
        "",
        f"Made by `{command}` on {datetime.date.today().isoformat()}: {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, {platform.system()} {platform.release()}. Medians of whole "
        "rounds run in turn; *dsh* is the original's npm packages on Node, on the same disk in the same run. "
        "Both acknowledge after the data is synced. A ratio says how many times faster turnlog is; beside a "
        "bar of the form ≤ it is turnlog's share.",
        "",
        "| job | turnlog | beside it | ratio | bar | met |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join(
        [
            *head,
            *(f"| {r.job} | {r.ours} | {r.rival} | {r.ratio} | {r.bar} | {marks[r.met]} |" for r in rows),
            "",
        ]
    )


def main() -> None:
    """Run the comparisons and write the report; a quick or partial run only prints it unless told where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run that only prints")
    parser.add_argument(
        "--only", choices=sorted(PARTS), action="append", help="only these parts; prints only"
    )
    parser.add_argument("--runs", type=int, help="counted rounds of each comparison")
    parser.add_argument("--output", type=Path, help="where to write the report of a quick or partial run")
    options = parser.parse_args()
    install_packages()
    scale = QUICK if options.quick else FULL
    if options.runs is not None:
        scale = replace(scale, runs=options.runs)
    place = Path(__file__).parent / ".work"
    place.mkdir(exist_ok=True)
    rows: list[Row] = []
    for part in [PARTS[name] for name in options.only] if options.only else PARTS.values():
        for row in part(scale, place):
            rows.append(row)
            print(
                f"{row.job}: {row.ours}  {row.rival}  {row.ratio}  (bar {row.bar}: {row.met})",
                file=sys.stderr,
                flush=True,
            )
    text = report(rows, " ".join(["python -m bench.run", *sys.argv[1:]]))
    target = options.output or (None if options.quick or options.only else RESULTS)
    if target is None:
        print(text)
    else:
        target.write_text(text)
        print(f"written to {target}")


if __name__ == "__main__":
    main()
