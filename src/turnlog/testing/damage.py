"""Ways in which stored bytes go bad, as named operators and as a Hypothesis strategy.

Owns changing bytes. What a reader must make of the result (torn, damage, intact) is the test's affair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class DamagedBytes:
    """The result of one operator."""

    kind: str
    """Name of the operator."""
    position: int
    """Byte offset at which it worked."""
    data: bytes
    """The bytes after it."""


def truncate(data: bytes, at: int) -> bytes:
    """Keep the first `at` bytes."""
    return data[:at]


def flip_bit(data: bytes, at: int, bit: int = 0) -> bytes:
    """Invert bit `bit` (0 is the lowest) of the byte at `at`."""
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def zero_fill(data: bytes, at: int, size: int = 512) -> bytes:
    """Overwrite up to `size` bytes from `at` with zeros, as a lost block does."""
    end = min(at + size, len(data))
    return data[:at] + bytes(end - at) + data[end:]


def insert(data: bytes, at: int, what: bytes = b"\x00garbage\n") -> bytes:
    """Put foreign bytes in at `at`."""
    return data[:at] + what + data[at:]


def cut_out(data: bytes, at: int, size: int = 16) -> bytes:
    """Remove up to `size` bytes from `at`."""
    return data[:at] + data[at + size :]


def repeat_tail(data: bytes, at: int) -> bytes:
    """Append once more everything from `at` on, as a retried write does."""
    return data + data[at:]


def drop_line(data: bytes, at: int) -> bytes:
    """Remove the line that contains the byte at `at`, with its newline."""
    start = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    return data[:start] + (data[end + 1 :] if end >= 0 else b"")


def double_line(data: bytes, at: int) -> bytes:
    """Repeat the line that contains the byte at `at`."""
    start = data.rfind(b"\n", 0, at) + 1
    end = data.find(b"\n", at)
    line = data[start : end + 1] if end >= 0 else data[start:]
    return data[:start] + line + data[start:]


OPERATORS: dict[str, Callable[[bytes, int], bytes]] = {
    "truncate": truncate,
    "flip-bit": flip_bit,
    "zero-fill": zero_fill,
    "insert": insert,
    "cut-out": cut_out,
    "repeat-tail": repeat_tail,
    "drop-line": drop_line,
    "double-line": double_line,
}
"""Every operator by name; each takes the bytes and an offset inside them."""


def damaged(data: bytes, *, first: int = 0) -> st.SearchStrategy[DamagedBytes]:
    """Draw one damaged version of `data`.

    Args:
        data: Stored bytes, not empty.
        first: Smallest offset to work at, for example the end of the header line.

    Returns:
        A strategy; an operator may happen to leave the bytes as they were.
    """

    def apply(kind: str, at: int) -> DamagedBytes:
        return DamagedBytes(kind, at, OPERATORS[kind](data, at))

    return st.builds(apply, st.sampled_from(sorted(OPERATORS)), st.integers(first, len(data) - 1))
