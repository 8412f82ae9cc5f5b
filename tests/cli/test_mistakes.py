"""What people type and meet that is not as it should be: names, stores, several at once, closed pipes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

import turnlog
from tests.cli.logs import Cli, command, finished, plant, sent_to, snapshot


def spoiled() -> bytes:
    """Return the body of a log in which the third row is none."""
    rows = [event.line for event in finished()]
    rows[2] = b"#"
    return b"".join(row + b"\n" for row in rows)


# -- names ------------------------------------------------------------------------------------------


def test_an_empty_store_url_is_not_the_default_store(cli: Cli, root: Path) -> None:
    """A script's unset variable is refused, and nothing is erased anywhere."""
    path = plant(root, "s", finished())
    for arguments in (("list",), ("rm", "s", "--yes"), ("verify", "--all")):
        result = cli(*arguments, "--store", "")
        assert result.code == 2
        assert "is not a store URL" in result.err
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("store", "--store jsonl:"),
        ("store/--srv-app--", "--store jsonl:"),
        ("store/--srv-app--/twice", "holds two logs"),
        ("notes.txt", "is no log"),
        ("nowhere/session.jsonl", "no such file"),
    ],
)
def test_a_path_that_names_no_log(
    cli: Cli, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    """What stands there is told, besides that no session has this name."""
    plant(root, "s", finished())
    plant(root, "twice", finished())
    plant(root, "other", finished(), encoding="zstd")
    path = plant(root, "y", finished(), encoding="zstd")
    (root / "--srv-app--" / "twice" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    result = cli("inspect", name)
    assert result.code == 6
    assert says in result.err
    assert says not in cli("inspect", "nobody").err


def test_one_unknown_name_among_several(cli: Cli, root: Path, tmp_path: Path) -> None:
    """The others are verified and copied all the same; the exit code and a line tell of it."""
    plant(root, "a", finished())
    plant(root, "b", finished())
    target = f"jsonl:{tmp_path / 'target'}"
    verified = cli("verify", "a", "nobody", "b")
    assert verified.code == 6
    assert [line.split()[:2] for line in verified.out.splitlines()[:2]] == [["ok", "a"], ["ok", "b"]]
    assert "nobody" in verified.err
    errors = [json.loads(line) for line in cli("verify", "nobody", "x", "a", "--json").err.splitlines()]
    assert [found["error"]["session_id"] for found in errors] == ["nobody", "x"]
    copied = cli("copy", "a", "nobody", "b", "--to", target)
    assert copied.code == 6
    assert [line.split()[0] for line in copied.out.splitlines()] == ["copied", "not", "copied"]
    plant(root, "bad", [], tail=spoiled())
    assert cli("verify", "nobody", "bad").code == 3


# -- damage -----------------------------------------------------------------------------------------


def test_a_folder_that_holds_a_copy_of_another_session(cli: Cli, root: Path) -> None:
    """The copy is named and is damage; the session that it was copied from is as good as before."""
    path = plant(root, "s", finished())
    (path.parent.parent / "s-copy").mkdir()
    (path.parent.parent / "s-copy" / path.name).write_bytes(path.read_bytes())
    result = cli("verify", "--all", "--json")
    assert result.code == 3
    verdicts = {v["id"]: v["status"] for v in map(json.loads, result.out.splitlines())}
    assert verdicts == {"s": "ok", "s-copy": "corrupt"}
    listed = {entry["id"]: entry["status"] for entry in json.loads(cli("list", "--json").out)}
    assert listed == verdicts


def test_a_session_stored_twice(cli: Cli, root: Path, tmp_path: Path) -> None:
    """Its JSON is printed like that of other damage; either file can be salvaged by its path."""
    path = plant(root, "s", finished())
    other = plant(root, "y", finished()[:-1], encoding="zstd")
    second = path.parent / other.name
    text = path.read_bytes().split(b"\n")
    from turnlog.events import frames

    second.write_bytes(frames.compress(text[0] + b"\n") + frames.compress(b"\n".join(text[1:-3]) + b"\n"))
    shown = json.loads(cli("inspect", "s", "--json").out)
    assert (shown["status"], [place["kind"] for place in shown["damage"]]) == ("corrupt", ["duplicate"])
    assert cli("inspect", "s").code == 3
    target = f"jsonl:{tmp_path / 'target'}"
    refused = cli("salvage", "s", "--to", target)
    assert refused.code == 3
    assert "given as a file" in refused.err
    counts = []
    for number, file in enumerate((path, second)):
        saved = cli("salvage", file, "--to", target, "--id", f"saved-{number}", "--json")
        assert saved.code == 0
        counts.append(json.loads(saved.out)["events"])
    assert counts == [len(finished()), len(finished()) - 2]
    assert cli("rm", path, "--yes").code == 3
    assert path.exists()
    assert second.exists()


@pytest.mark.parametrize("encoding", ["none", "zstd"])
@pytest.mark.parametrize("name", ["kept.jsonl", "session.jsonl"])
def test_a_loose_file_without_a_header(
    cli: Cli, root: Path, tmp_path: Path, encoding: str, name: str
) -> None:
    """Verify gives a verdict and salvage saves the events, under the file's or its folder's name."""
    path = plant(root, "s", finished(), encoding=encoding)  # type: ignore[arg-type]  # one of the two
    file = tmp_path / "mail" / (name if encoding == "none" else f"{name}.zstd")
    file.parent.mkdir()
    whole = path.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    result = cli("verify", file, "--json")
    assert result.code == 3
    verdict = json.loads(result.out)
    assert (verdict["status"], verdict["event_count"]) == ("corrupt", len(finished()))
    assert [found["kind"] for found in verdict["findings"]] == [
        "header" if encoding == "none" else "frame-magic"
    ]
    saved = cli("salvage", file, "--to", f"jsonl:{tmp_path / 'target'}", "--json")
    assert saved.code == 0
    facts = json.loads(saved.out)
    assert facts["events"] == len(finished())
    assert facts["new_id"] == ("mail" if name == "session.jsonl" else "kept")


async def test_a_damaged_image_is_exit_3(process: Cli, root: Path) -> None:
    """Whatever is damaged is no success."""
    from tests.unit.persistence.damaged import IMAGE

    async with turnlog.open(f"jsonl:{root}") as store:
        block = await store.attachments.put(IMAGE)
        async with store.create(id="s") as session, session.turn() as turn:
            turn.user([block])
    digest = block["attachment"]["attachmentId"].removeprefix("sha256:")
    next(root.rglob(digest)).write_bytes(b"x")
    result = process("verify", "s")
    assert result.code == 3
    assert "attachment-damaged" in result.out
    copied = process("copy", "s", "--to", f"jsonl:{root.parent / 'target'}")
    assert "1 image missing or damaged in the source" in copied.out
    saved = process("salvage", "s", "--to", f"jsonl:{root.parent / 'saved'}")
    assert "lost    1 image" in saved.out


def test_problems_are_whole_in_a_pipe(cli: Cli, root: Path) -> None:
    """Nothing that a person needs is cut where there is no width."""
    plant(root, "s", finished())
    plant(root, "s", finished(), cwd="/srv/other")
    assert cli("list").out.count("move one of the folders away") == 2


# -- stores -----------------------------------------------------------------------------------------


def test_the_same_store_by_another_name(cli: Cli, root: Path) -> None:
    """Nothing is called copied that has only one place."""
    plant(root, "s", finished())
    result = cli("copy", "--all", "--to", f"jsonl:{root}/../store")
    assert (result.code, result.out) == (2, "")
    assert "in one place" in result.err
    named = cli("copy", "s", "--to", f"jsonl:{root}/../store")
    assert named.code == 2
    assert named.out.startswith("not copied  s")


def test_copying_nothing_is_told(cli: Cli, root: Path, tmp_path: Path) -> None:
    """A mistyped store is not silent success."""
    target = f"jsonl:{tmp_path / 'target'}"
    result = cli("copy", "--all", "--to", target)
    assert (result.code, result.out) == (0, "")
    assert f"no sessions in jsonl:{root}" in result.err
    assert cli("copy", "--all", "--to", target, "-q").err == ""


def test_other_content_in_the_target(cli: Cli, root: Path, tmp_path: Path) -> None:
    """The advice is one that copy and import can follow."""
    plant(root, "s", finished())
    plant(tmp_path / "target", "s", finished()[:3], cwd="/elsewhere")
    result = cli("copy", "s", "--to", f"jsonl:{tmp_path / 'target'}")
    assert result.code == 1
    assert "another store" in result.out
    assert "give the new session another id" not in result.out


def test_one_bad_bundle_among_several(cli: Cli, root: Path, tmp_path: Path) -> None:
    """The others are taken; what was not is told, and is the exit code."""
    plant(root, "s", finished())
    good, bad = tmp_path / "good.zip", tmp_path / "bad.zip"
    assert cli("export", "s", "--format", "bundle", "-o", good).code == 0
    bad.write_bytes(good.read_bytes()[:-100])
    target = f"jsonl:{tmp_path / 'target'}"
    result = cli("import", bad, tmp_path / "nowhere.zip", good, "--store", target)
    assert result.code == 2
    assert result.out == f"s  {len(finished())} events\n"
    assert "bad.zip" in result.err
    assert "nowhere.zip" in result.err
    plant(tmp_path / "other", "s", finished()[:3], cwd="/elsewhere")
    taken = cli("import", good, "--store", f"jsonl:{tmp_path / 'other'}")
    assert taken.code == 1
    assert taken.out.startswith("not taken  s  ")
    shown = cli("import", good, "--store", f"jsonl:{tmp_path / 'other'}", "--json")
    assert (shown.code, json.loads(shown.out)[0]["error"]["code"]) == (1, "session-collision")


def test_an_output_that_cannot_be_written(cli: Cli, root: Path, tmp_path: Path) -> None:
    """The error has the name that was given, not one that nobody has written."""
    plant(root, "s", finished())
    result = cli("export", "s", "--format", "jsonl", "-o", tmp_path / "nowhere" / "x")
    assert result.code == 1
    assert result.err == f"turnlog: No such file or directory: {tmp_path / 'nowhere' / 'x'}\n"


# -- pipes and terminals ----------------------------------------------------------------------------


def test_a_reader_that_leaves_while_nothing_happens(root: Path) -> None:
    """`tail -f | head` ends when `head` has, not at the next event."""
    plant(root, "s", finished())
    before = snapshot(root)
    with subprocess.Popen(
        command("tail", "-f", "s", "-n", "1"),
        env={**os.environ, "TURNLOG_STORE": f"jsonl:{root}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        try:
            assert process.wait(20) == 0
        finally:
            process.kill()
        assert process.stderr.read() == b""
    assert snapshot(root) == before


def test_ctrl_c_while_following(root: Path) -> None:
    """Watching for the reader does not swallow it."""
    plant(root, "s", finished())
    with subprocess.Popen(
        command("tail", "-f", "s", "-n", "1"),
        env={**os.environ, "TURNLOG_STORE": f"jsonl:{root}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")


def _on_a_terminal(root: Path, *arguments: object) -> bytes:
    """Run with every stream on one terminal and return what that was sent."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command(*arguments),
        env={**os.environ, "TURNLOG_STORE": f"jsonl:{root}", "TERM": "xterm", "COLUMNS": "100"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    ) as process:
        os.close(slave)
        seen = sent_to(master)
        process.wait(20)
    os.close(master)
    return seen


@pytest.mark.parametrize("arguments", [("verify", "--all"), ("copy", "--all", "--to", "memory:")])
def test_lines_and_bar_on_one_terminal(root: Path, arguments: tuple[str, ...]) -> None:
    """A line never stands behind a bar: each begins in the first column."""
    for number in range(5):
        plant(root, f"s-{number}", finished())
    seen = _on_a_terminal(root, *arguments)
    for number in range(5):
        before = seen[: seen.index(b"s-%d" % number)].rpartition(b"\n")[2].rpartition(b"\r")[2]
        assert b"sessions" not in before.rpartition(b"\x1b[2K")[2], seen
    assert b"\x1b[?25h" in seen  # there was a bar
    json_lines = _on_a_terminal(root, *arguments, "--json")
    assert b"\x1b" not in json_lines
    assert len([json.loads(line) for line in json_lines.splitlines()]) == 5


# -- rm ---------------------------------------------------------------------------------------------


async def _fork(root: Path, child: str) -> None:
    async with turnlog.open(f"jsonl:{root}") as store:
        await (await store.fork("s", child_id=child)).aclose()


def test_the_question_names_the_forks_that_stay(root: Path) -> None:
    """Whoever is asked knows what will be left before answering."""
    plant(root, "s", finished())
    for child in ("c-1", "c-2"):
        asyncio.run(_fork(root, child))
    master, slave = pty.openpty()
    with subprocess.Popen(
        command("rm", "s"),
        env={**os.environ, "TURNLOG_STORE": f"jsonl:{root}"},
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        os.write(master, b"y\n")
        out, err = process.communicate(timeout=60)
    os.close(master)
    os.close(slave)
    assert b"2 forks keep the part they began with: c-1, c-2. Erase s alone? [y/N]" in err
    assert out == b"erased s\n"


def test_finishing_an_erasure(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader has held back can be erased later, by a command that asks nothing."""
    from turnlog.backends.jsonl.backend import JsonlBackend
    from turnlog.persistence import erasing

    erased = False

    async def remains(self: JsonlBackend) -> bool:
        return erased

    monkeypatch.setattr(JsonlBackend, "erase_remains", remains, raising=False)
    monkeypatch.setattr(erasing, "PAUSE", 0.0)
    plant(root, "s", finished())
    assert "turnlog rm --remains finishes this" in cli("rm", "s", "--yes").err
    held = cli("rm", "--remains")
    assert held.code == 1
    assert "a reader holds" in held.err
    erased = True
    assert cli("rm", "--remains").code == 0
    shown = cli("rm", "--remains", "--json")
    assert (shown.code, shown.out) == (0, '{"erased":true}\n')
    for arguments in ((), ("s", "--remains")):
        assert cli("rm", *arguments).code == 2


@pytest.mark.parametrize("arguments", [("verify", "--all"), ("copy", "--all", "--to", "memory:")])
def test_results_are_printed_as_they_come(root: Path, arguments: tuple[str, ...]) -> None:
    """A reader sees each as soon as it is known, and Ctrl-C takes back nothing that was said."""
    for number in range(200):  # all lines together are shorter than a stream's buffer
        plant(root, f"s-{number:03}", finished())
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        command(*arguments, "--parallel", "1"),
        env={**buffered, "TURNLOG_STORE": f"jsonl:{root}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert b"s-000" in first
    assert (process.returncode, err) == (130, b"")
    assert out.count(b"\n") < 199


def test_one_unreadable_log_among_several(cli: Cli, root: Path) -> None:
    """The medium's failure at one log is told, and the others are verified and copied."""
    path = plant(root, "bad", [])
    path.unlink()
    path.mkdir()
    plant(root, "good", finished())
    verified = cli("verify", "bad", "good")
    assert (verified.code, verified.out.split()[:2]) == (1, ["ok", "good"])
    assert str(path) in verified.err
    copied = cli("copy", "bad", "good", "--to", "memory:")
    assert copied.code == 1
    assert [line.split()[0] for line in copied.out.splitlines()] == ["not", "copied"]
