"""Golden vectors and whole recorded files: the same bytes, the same events, in both encodings."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.paths import DATA, read
from turnlog.events import frames, lossless
from turnlog.events.batch import EncodedBatch
from turnlog.events.chunk_runs import pack_lines
from turnlog.events.frames import FrameError
from turnlog.events.header import SessionHeader, header_line, parse_header_line
from turnlog.events.live_run import pack_rows
from turnlog.events.scan import ScanResult, scan_frames, scan_text

HEADER = SessionHeader(id="demo-1", created_at=1700000000000, cwd="/srv/app")
BODY = """\
{"type":"turn/start","seq":0,"time":1700000000001,"data":{"turn":1}}
{"type":"step/start","seq":1,"time":1700000000002,"data":{"turn":1,"step":1}}
{"type":"user/message","seq":2,"time":1700000000003,"data":{"content":[{"type":"text","text":"Grüße 👋"}],\
"source":{"kind":"user"},"role":"user","id":"m-1"},"surfaceOp":"append"}
{"type":"request/header","seq":3,"time":1700000000004,"data":{"header":{"config":{"provider":"acme",\
"model":"a1"}},"reason":"initial"}}
{"type":"assistant/chunk","seq":4,"time":1700000000010,"data":{"turn":1,"step":1,"chunk":{"type":"block-start",\
"index":0,"blockType":"text"}}}
{"type":"text-chunks","seq0":5,"time0":1700000000011,"data":{"turn":1,"step":1,"index":0,"dt":[0,-2,11],\
"texts":["Hel","lo","","!\\n"]}}
{"type":"assistant/chunk","seq":9,"time":1700000000021,"data":{"turn":1,"step":1,"chunk":{"type":"block-end",\
"index":0,"block":{"type":"text","text":"Hello!\\n"}}}}
{"type":"assistant/chunk","seq":10,"time":1700000000022,"data":{"turn":1,"step":1,"chunk":{"type":"usage",\
"usage":{"inputTokens":12,"outputTokens":4}}}}
{"type":"assistant/chunk","seq":11,"time":1700000000022,"data":{"turn":1,"step":1,"chunk":{"type":"finish",\
"reason":{"kind":"stop"}}}}
{"type":"assistant/message","seq":12,"time":1700000000023,"data":{"turn":1,"step":1,"message":\
{"role":"assistant","content":[{"type":"text","text":"Hello!\\n"}],"source":{"kind":"model","provider":"acme",\
"model":"a1"},"id":"m-2"},"usage":{"inputTokens":12,"outputTokens":4}},"sourceEventSeqs":[4,5,6,7,8,9,10,11],\
"surfaceOp":"append"}
{"type":"step/end","seq":13,"time":1700000000024,"data":{"turn":1,"step":1}}
{"type":"turn/end","seq":14,"time":1700000000025,"data":{"turn":1,"reason":{"kind":"completed"}}}
""".encode()

PLAIN = (1814, "84f1eeb1f954a4c337b82f22e0ab3d77198197c2ec5dcc9ff9f8351846651878")
UNPACKED = (2218, "b0f593629a3f1093733bf915f040a6d1035af34816336aebb964fdf55a04cd39")
ZSTD = (683, "429b578cf34ad97ddff00145e39b3b6cf86ba009afee063cbf4332e3f798f88f")


def size_and_digest(data: bytes) -> tuple[int, str]:
    """Return what the vectors state of a file."""
    return len(data), hashlib.sha256(data).hexdigest()


def golden_batch() -> EncodedBatch:
    """Encode the fifteen events of the vector anew."""
    events = list(scan_text(BODY).log)
    assert [event.seq for event in events] == list(range(15))
    return EncodedBatch.of(events)


def test_the_plain_file_is_byte_for_byte_the_vector() -> None:
    """Header line and packed rows."""
    assert size_and_digest(header_line(HEADER) + golden_batch().text()) == PLAIN


def test_the_unpacked_file_is_byte_for_byte_the_vector() -> None:
    """One event per line, keys in canonical order."""
    lines = b"".join(event.line + b"\n" for event in golden_batch().events())
    assert size_and_digest(header_line(HEADER) + lines) == UNPACKED


def test_the_zstd_file_is_byte_for_byte_the_vector() -> None:
    """A frame for the header and a frame for the batch; holds where zstd is 1.5.7."""
    header = frames.compress(header_line(HEADER))
    assert len(header) == 103
    assert size_and_digest(header + golden_batch().frame()) == ZSTD


def test_cutting_the_vector_recovers_what_the_original_recovers() -> None:
    """Without 1 to 4 bytes all fifteen events come back, without more none."""
    data = frames.compress(header_line(HEADER)) + golden_batch().frame()
    for cut, count in ((1, 15), (4, 15), (5, 0), (100, 0)):
        result = scan_frames(data[:-cut], start=103)
        assert (len(result.log), result.committed_bytes, result.is_torn) == (count, 103, True)


FILES = sorted(path.relative_to(DATA).as_posix() for path in (DATA / "jsonl").glob("*/*.jsonl*"))


def parts_of(path: Path) -> tuple[bytes, ScanResult, bytes]:
    """Read a log file: header line, scanned body, all bytes."""
    data = path.read_bytes()
    if path.suffix == ".zstd":
        end = frames.frame_end(data, 0)
        assert end is not None
        return frames.decompress(data[:end]), scan_frames(data, start=end), data
    end = data.index(b"\n") + 1
    return data[:end], scan_text(data[end:], first_offset=end), data


def expected(name: str) -> dict[str, Any]:
    """Return what the original says about a log file, its numbers read as doubles."""
    path = DATA / (name.replace(".jsonl.zstd", "").replace(".jsonl", "") + ".expected.json")
    found: dict[str, Any] = lossless.decode(path.read_bytes())
    return found


@pytest.mark.parametrize("name", FILES)
def test_recorded_files_read_whole(name: str) -> None:
    """The same header, events, key order and digest; every byte is committed."""
    header, result, data = parts_of(DATA / name)
    wanted = expected(name)
    assert header_line(parse_header_line(header, session_id=wanted["id"])) == header
    assert parse_header_line(header).to_dict() == wanted["header"]
    assert (result.issue, result.committed_bytes, result.size) == (None, len(data), len(data))
    assert (len(result.log), result.log.digest()) == (wanted["stored_count"], wanted["stored_sha256"])
    if "events" in wanted:
        stored = wanted["events"][: wanted["stored_count"]]
        assert [event.line for event in result.log] == [lossless.encode(event) for event in stored]
    else:
        assert result.log[0].to_dict() == wanted["first_event"]


@pytest.mark.parametrize("name", FILES)
def test_recorded_files_encode_to_the_same_bytes(name: str) -> None:
    """Stored events, in the same batches, give the original's rows and frames back."""
    _, result, data = parts_of(DATA / name)
    packed = expected(name)["pack_chunks"]
    for row in result.log.rows:
        events = list(row.events())
        assert [made.line for made in pack_rows(events)] == [row.line]
        assert pack_lines([event.to_dict() for event in events]) == [row.line]
        assert all(lossless.encode(event.to_dict()) == event.line for event in events)
    if not name.endswith(".zstd") or not packed:
        return
    seq = 0
    for start, end in frames.scan(data).spans[1:]:
        stored = scan_text(frames.decompress(data[start:end]), expected_seq=seq).log
        seq = stored.next_seq
        assert EncodedBatch.of(list(stored)).frame() == data[start:end]


def cut_outcome(data: bytes, zstd: bool) -> tuple[int, int, int] | str:
    """Read the beginning of a file as far as it goes: events, torn bytes, recovered events."""
    try:
        if zstd:
            end = frames.frame_end(data, 0)
            if end is None:
                return "error"
            parse_header_line(frames.decompress(data[:end]))
            result = scan_frames(data, start=end)
        else:
            end = data.find(b"\n") + 1
            if not end:
                return "error"
            result = scan_text(data[end:], first_offset=end)
    except FrameError:
        return "error"
    assert not result.is_damage
    return len(result.log), result.torn_bytes, len(result.log) - result.committed_seq


def cuts() -> list[tuple[str, Path, dict[str, Any]]]:
    """Collect the files that were cut, with the original's results by offset."""
    found = []
    for kind in ("plain", "zstd"):
        every = read(f"torn/every-offset.{kind}.json")
        found.append((f"every-offset-{kind}", DATA / "torn" / every["base"], every["results"]))
        suffix = ".jsonl" if kind == "plain" else ".jsonl.zstd"
        for name, results in read(f"torn/sampled.{kind}.json")["results"].items():
            found.append((f"{name}-{kind}", DATA / "jsonl" / kind / (name + suffix), results))
    multi = read("torn/multiblock.zstd.json")
    found.append(("multiblock", DATA / "torn" / "multiblock.jsonl.zstd", multi["results"]))
    return found


@pytest.mark.parametrize(("name", "path", "results"), cuts(), ids=[name for name, _, _ in cuts()])
def test_every_cut_reads_as_in_the_original(name: str, path: Path, results: dict[str, Any]) -> None:
    """Events, torn bytes and recovered events agree at every recorded offset; no cut is damage (R2)."""
    data = path.read_bytes()
    for offset, theirs in results.items():
        wanted: tuple[int, int, int] | str = "error"
        if theirs["status"] == "ok":
            wanted = (theirs["n_events"], theirs["torn_bytes"], theirs.get("recovered_events", 0))
        assert cut_outcome(data[: int(offset)], path.suffix == ".zstd") == wanted, (name, offset)
