"""What importing turnlog loads, which names it has, and what the built wheel holds."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
import zipfile
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path

import pytest

import turnlog
from tests.faults.lanes import need
from turnlog import transcripts

ROOT = Path(__file__).parents[2]
ALLOWED = {"turnlog", "msgspec", "typing_extensions", "backports", "compression"}
"""Top-level packages beside the standard library: msgspec with what it takes along where it is installed,
and zstd, which is in one of the last two."""
OPTIONAL = {"click", "rich", "sqlite3", "pytest", "hypothesis", "zstandard", "psycopg", "starlette"}


def modules_after(script: str) -> set[str]:
    """Run a script in a fresh, isolated interpreter and return the modules that are loaded then."""
    code = f"{script}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "script",
    [
        "import turnlog",
        "import turnlog\nfor name in turnlog.__all__: getattr(turnlog, name)",
        "import turnlog, asyncio\n"
        "async def main():\n"
        "    async with turnlog.open('memory:') as store, store.create() as session, session.turn():\n"
        "        pass\n"
        "asyncio.run(main())",
    ],
)
def test_import_loads_nothing_optional(script: str) -> None:
    """Importing turnlog, using every name and recording a turn load msgspec and zstd only."""
    before = {name.partition(".")[0] for name in modules_after("pass")}
    loaded = {name.partition(".")[0] for name in modules_after(script)} - before
    assert loaded & OPTIONAL == set()
    assert loaded - set(sys.stdlib_module_names) <= ALLOWED


def test_import_alone_loads_no_module_of_the_package() -> None:
    """Names are loaded when they are first used."""
    loaded = modules_after("import turnlog")
    assert {name for name in loaded if name.startswith("turnlog")} == {"turnlog", "turnlog.lazy_names"}
    assert "asyncio" not in loaded


def test_a_command_loads_no_other_one() -> None:
    """The command line starts quickly: exports, demo and databases are loaded when they are wanted."""
    script = "import sys\nfrom turnlog.cli.main import main\nsys.stdout = None\nmain(['list', '--help'])"
    loaded = modules_after(f"{script}\nsys.stdout = sys.__stdout__")
    assert "turnlog.cli.listing" in loaded
    others = {"turnlog.cli.demo", "turnlog.cli.exporting", "turnlog.transcripts.exporting", "sqlite3"}
    assert loaded & others == set()


def test_public_names() -> None:
    """`__all__` is sorted, complete with regard to the lazy table, and every name resolves."""
    assert turnlog.__all__ == sorted(turnlog.__all__)
    assert len(set(turnlog.__all__)) == len(turnlog.__all__)
    assert set(turnlog._ELSEWHERE) <= set(turnlog.__all__)
    for name in turnlog.__all__:
        assert getattr(turnlog, name) is not None
        assert name in dir(turnlog)
    assert {
        "LiveSession",
        "SessionEvent",
        "SessionInfo",
        "SessionStore",
        "TurnlogError",
        "check_invariants",
        "derive_messages",
        "dumps",
        "interrupted_turn_closers",
        "open",
    } <= set(turnlog.__all__)


def test_public_names_of_transcripts() -> None:
    """Every name has a place, and none is a module's, which would hide it once that module is loaded."""
    assert set(transcripts.__all__) == set(transcripts._ELSEWHERE)
    modules = {module.name for module in pkgutil.iter_modules(transcripts.__path__)}
    assert set(transcripts.__all__) & modules == set()
    for name in transcripts.__all__:
        assert getattr(transcripts, name) is not None
        assert name in dir(transcripts)


def test_every_error_is_public() -> None:
    """Whatever turnlog raises can be named as `turnlog.X`."""
    from turnlog import errors

    tree = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, errors.TurnlogError)
    }
    assert tree <= set(turnlog.__all__)


def test_unknown_names_are_attribute_errors() -> None:
    """A name that is not there fails like in any module."""
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = turnlog.nope
    assert not hasattr(turnlog, "__wrapped__")


def test_version_is_that_of_the_distribution() -> None:
    """`turnlog.__version__` comes from the installed metadata."""
    assert turnlog.__version__ == version("turnlog")


def test_core_requirements() -> None:
    """Without extras turnlog needs msgspec and one zstd package."""
    core = [need for need in requires("turnlog") or [] if "extra ==" not in need]
    names = sorted(need.split(">")[0].strip().replace("-", ".") for need in core)
    assert names == ["backports.zstd", "msgspec"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Build the wheel of the working tree and list its files."""
    need(find_spec("hatchling") is not None, "hatchling is missing; `make setup` installs it")
    folder = tmp_path_factory.mktemp("wheel")
    script = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    with zipfile.ZipFile(folder / done.stdout.strip().splitlines()[-1]) as archive:
        return set(archive.namelist())


def test_wheel_is_typed_and_whole(wheel: set[str]) -> None:
    """Every module of the source tree and `py.typed` are in the wheel."""
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/turnlog").rglob("*.py")}
    assert "turnlog/py.typed" in wheel
    assert source <= wheel


def test_wheel_holds_nothing_else(wheel: set[str]) -> None:
    """No tests, no benches, no documentation: the package and its metadata only."""
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"turnlog"}
    assert not [name for name in wheel if "/tests/" in name or name.startswith("tests/")]
