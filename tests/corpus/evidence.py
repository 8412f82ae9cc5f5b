"""What the bytes of a recorded log prove, found out without turnlog: the conditions of rules about damage.

Deliberately another, slower reading of the same rule (R2) than the row scanner's.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from backports import zstd

_MAGIC = b"\x28\xb5\x2f\xfd"
_OPENING = re.compile(rb'\{"type":"')
_PACKED = {"text-chunks": "texts", "reasoning-chunks": "texts", "tool-call-chunks": "args"}


class LossyError(ValueError):
    """JSON text that a double or a Unicode string cannot hold exactly."""


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value) or (value == 0 and text.startswith("-")):
        raise LossyError(text)
    return value


def _integer(text: str) -> int:
    if text == "-0":
        raise LossyError(text)
    return int(text)


def _constant(text: str) -> Any:
    raise ValueError(text)


_decoder = json.JSONDecoder(parse_float=_number, parse_int=_integer, parse_constant=_constant)


def is_lossy(line: bytes) -> bool:
    """Tell whether a line is JSON that the original reads and turnlog refuses as lossy (L2)."""
    try:
        _decoder.decode(line.decode("utf-8"))
    except LossyError:
        return True
    except UnicodeDecodeError:
        try:
            json.loads(line.decode("utf-8", "replace"))
        except ValueError:
            return False
        return True
    except ValueError:
        return False
    return False


def _is_count(value: object) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and value == int(value)
    )


def seqs(value: object) -> tuple[int, int] | None:
    """Return the first and last seq of a decoded row, or None if it is no row."""
    if not isinstance(value, dict):
        return None
    if value.get("type") in _PACKED:
        data = value.get("data")
        if set(value) != {"type", "seq0", "time0", "data"} or not isinstance(data, dict):
            return None
        members, dt = data.get(_PACKED[value["type"]]), data.get("dt")
        if not isinstance(members, list) or not isinstance(dt, list) or not _is_count(value["seq0"]):
            return None
        if len(dt) != len(members) - 1 or not all(isinstance(member, str) for member in members):
            return None
        return int(value["seq0"]), int(value["seq0"]) + len(members) - 1
    if not isinstance(value.get("type"), str) or not _is_count(value.get("seq")):
        return None
    return int(value["seq"]), int(value["seq"])


def row_of(line: bytes) -> tuple[int, int] | None:
    """Return the seqs of a line that is a row."""
    try:
        return seqs(_decoder.decode(line.decode("utf-8")))
    except ValueError:
        return None


def _parts(line: bytes) -> list[tuple[int, int]]:
    """Return the seqs of rows that begin inside a line."""
    found = []
    text = line.decode("utf-8", "replace")
    for match in re.finditer(r'\{"type":"', text):
        if match.start() == 0:
            continue
        try:
            value, _ = _decoder.raw_decode(text, match.start())
        except ValueError:
            continue
        row = seqs(value)
        if row is not None:
            found.append(row)
    return found


def first_bad_line(body: bytes) -> tuple[int, int, list[bytes]]:
    """Return the index of the first bad line of a plain body, the seq due there, and all lines.

    A last line without its newline is bad; a good body has its index behind the last line.
    """
    lines = body.split(b"\n")
    complete = len(lines) - 1
    due = 0
    for index in range(complete):
        row = row_of(lines[index])
        if row is None or row[0] != due:
            return index, due, lines
        due = row[1] + 1
    return complete, due, lines if lines[-1] else lines[:-1]


def later_event(body: bytes) -> bool:
    """Tell whether a valid event with a seq that is due or later stands at or behind the first bad byte."""
    index, due, lines = first_bad_line(body)
    for line in lines[index:]:
        row = row_of(line)
        is_whole = line is not lines[-1] or body.endswith(b"\n")
        if is_whole and row is not None and row[1] >= due:
            return True
        if any(last >= due for _, last in _parts(line)):
            return True
    return False


def repeats_last_row(body: bytes) -> bool:
    """Tell whether the first bad line is an exact copy of the line before it, and the last one."""
    index, _, lines = first_bad_line(body)
    return 0 < index < len(lines) and lines[index] == lines[index - 1] and not b"".join(lines[index + 1 :])


def lossy_lines(body: bytes) -> bool:
    """Tell whether the first bad line is one that the original reads."""
    index, _, lines = first_bad_line(body)
    return index < len(lines) and is_lossy(lines[index])


def frames_of(data: bytes) -> tuple[list[bytes], int]:
    """Return the plaintexts of the good frames at the beginning of a file, and where they end."""
    texts: list[bytes] = []
    at = 0
    while at < len(data):
        decoder = zstd.ZstdDecompressor()
        try:
            text = decoder.decompress(data[at:])
        except zstd.ZstdError:
            break
        if not decoder.eof:
            break
        texts.append(text)
        at = len(data) - len(decoder.unused_data)
    return texts, at


def later_frame(data: bytes) -> bool:
    """Tell whether a complete frame stands behind the place where the chain of good frames ends."""
    _, end = frames_of(data)
    at = data.find(_MAGIC, end + 1)
    while at >= 0:
        decoder = zstd.ZstdDecompressor()
        try:
            decoder.decompress(data[at:])
        except zstd.ZstdError:
            pass  # four bytes that look like a beginning
        else:
            if decoder.eof:
                return True
        at = data.find(_MAGIC, at + 1)
    return False


def repeats_last_frame(data: bytes) -> bool:
    """Tell whether all frames are good and the last one has the text of the one before it."""
    texts, end = frames_of(data)
    return end == len(data) and len(texts) > 2 and texts[-1] == texts[-2]
