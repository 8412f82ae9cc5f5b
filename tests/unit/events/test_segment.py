"""Session ids and working directories as path segments (S1)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events.samples import texts
from turnlog.errors import InvalidSessionIdError, UsageError
from turnlog.events import segment

IDS = {
    "demo-1": "demo-1",
    "a/b": "a~002Fb",
    "/etc/passwd": "~002Fetc~002Fpasswd",
    "../../etc/passwd": "..~002F..~002Fetc~002Fpasswd",
    "a\0b": "a~0000b",
    "a~b": "a~007Eb",
    "\ud800": "~D800",
    "👋": "~D83D~DC4B",
    ".": "~002E",
    "..": "~002E~002E",
    "...": "...",
    "ä x": "~00E4~0020x",
}


@pytest.mark.parametrize(("session_id", "name"), IDS.items())
def test_ids_become_safe_segments_and_back(session_id: str, name: str) -> None:
    """Everything outside of the safe characters is escaped by UTF-16 unit (JL1)."""
    assert segment.encode_segment(session_id) == name
    assert segment.decode_segment(name) == session_id


@given(texts.filter(bool))
def test_segments_never_leave_the_root(session_id: str) -> None:
    """No separator, no dot name, one segment, and different ids differ (JL2)."""
    name = segment.encode_segment(session_id)
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", name)
    assert name not in (".", "..")
    joined = session_id.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    assert segment.decode_segment(name) == joined


def test_length_is_bounded_by_the_segment() -> None:
    """240 bytes pass, 241 do not, counted after escaping; an empty id is refused."""
    assert len(segment.encode_segment("a" * 240)) == 240
    assert len(segment.encode_segment("/" * 48)) == 240
    for bad in ("", "a" * 241, "/" * 49, "x" * 4096):
        with pytest.raises(InvalidSessionIdError) as caught:
            segment.encode_segment(bad)
        assert caught.value.session_id == bad


@pytest.mark.parametrize("name", [".", "..", "a b", "~00e4", "~0041", "~12", "", "a/b"])
def test_foreign_directory_names_are_refused(name: str) -> None:
    """A name that no id encodes to is nobody's session."""
    with pytest.raises(InvalidSessionIdError):
        segment.decode_segment(name)


PROJECTS = {
    "/Users/x/work/app": "--Users-x-work-app--",
    "C:\\work\\agent": "--C-work-agent--",
    "C:/a//b": "--C-a-b--",
    "/a/": "--a---",
    "/": "--root--",
    "/~": "--~007E--",
    "..": "--..--",
    "/srv/app": "--srv-app--",
    "/a b": "--a~0020b--",
}


@pytest.mark.parametrize(("cwd", "name"), PROJECTS.items())
def test_working_directories_become_project_keys(cwd: str, name: str) -> None:
    """Runs of separators become one dash, leading dashes go (JL4)."""
    assert segment.project_key(cwd) == name


@given(st.text(min_size=1, max_size=400))
def test_project_keys_are_bounded(cwd: str) -> None:
    """At most 255 characters, all safe (JL4)."""
    assert re.fullmatch(r"--[A-Za-z0-9._~-]{1,251}--", segment.project_key(cwd))


def test_absent_and_empty_working_directories() -> None:
    """None has a directory of its own; an empty string is a mistake."""
    assert segment.project_key(None) == "_no-cwd"
    with pytest.raises(UsageError):
        segment.project_key("")
