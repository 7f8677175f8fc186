"""Sealed mode on a real interpreter: it seals itself, loses the file system, and goes on importing.

Each test runs a child on `python -S -s`, as the zygote does. "Loses the file system" is a seccomp
filter that fails every open, stat and listing where the kernel has one, and an audit hook that
refuses what Python itself would open everywhere.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm import worker
from tests.environments.test_python_versions import VERSIONS, find_python

BOOT = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.util, json, os
def load_package(name, folder):
    spec = importlib.util.spec_from_file_location(
        name, folder + "/__init__.py", submodule_search_locations=[folder]
    )
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
settings = json.loads(sys.argv[1])
load_package("rlm_worker", settings["worker"])
from rlm_worker.sandbox import preload, sealed
def tell(value):
    sys.__stdout__.write(json.dumps(value) + "\\n")
    sys.__stdout__.flush()
"""

SEAL = """
sys.path[:0] = settings.get("search_path", [])
preloading = preload.Preloading(settings.get("imports", []))
preloading.run()
roots = [tuple(root) for root in settings.get("roots", [])]
report = sealed.seal([("rlm_worker", settings["worker"]), *roots])
"""

LOSE_FILES = '''
import ctypes, errno, platform, struct
DENIED = {
    # openat openat2 newfstatat statx readlinkat getdents64 faccessat faccessat2
    "aarch64": (56, 437, 79, 291, 78, 61, 48, 439),
    # ... and open stat lstat access getdents creat readlink
    "x86_64": (257, 437, 262, 332, 267, 217, 269, 439, 2, 4, 6, 21, 78, 85, 89),
}
def install_filter():
    """Whether the kernel took it. The rules compare the number only: this is no security layer."""
    numbers = DENIED.get(platform.machine())
    if sys.platform != "linux" or numbers is None:
        return False
    rules = [struct.pack("<HBBI", 0x20, 0, 0, 0)]
    for position, number in enumerate(numbers):
        rules.append(struct.pack("<HBBI", 0x15, len(numbers) - position, 0, number))
    rules.append(struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000))
    rules.append(struct.pack("<HBBI", 0x06, 0, 0, 0x00050000 | errno.EPERM))
    program = ctypes.create_string_buffer(b"".join(rules))
    header = struct.pack("@HP", len(rules), ctypes.addressof(program))
    prctl = ctypes.CDLL(None).prctl
    arguments = (ctypes.c_ulong(0),) * 2
    prctl(38, ctypes.c_ulong(1), ctypes.c_ulong(0), *arguments)
    return prctl(22, ctypes.c_ulong(2), header, *arguments) == 0
def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and not isinstance(arguments[0], int):
        raise PermissionError(errno.EPERM, "sealed", str(arguments[0]))
filtered = install_filter()
sys.addaudithook(refuse)
try:
    open(os.__file__)
except PermissionError:
    pass
else:
    sys.exit("files can still be opened")
if filtered and os.path.exists(os.__file__):
    sys.exit("files can still be seen")
'''

NOT_OFFERED = {
    "folders that are skipped": {"idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"}
    | {"pydoc_data"},
    "extensions that are skipped": {"_tkinter", "readline", "nis", "ossaudiodev", "spwd"},
    "test modules": {"test", "_ctypes_test"},
    "needs tkinter": {"turtle"},
    "another system's": {"_ios_support"},
}
"""Top-level names of the standard library that sealing gives up, by the reason."""

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(
    params=[
        pytest.param(version, marks=() if version == HERE else pytest.mark.heavy)
        for version in VERSIONS
    ]
)
def python(request: pytest.FixtureRequest) -> str:
    found = sys.executable if request.param == HERE else find_python(request.param)
    if found is None:
        pytest.skip(f"there is no Python {request.param} here")
    return found


def run_child(code: str, python: str = sys.executable, **settings: Any) -> Any:
    """What the child told last, as JSON."""
    settings["worker"] = str(Path(worker.__file__).parent)
    done = subprocess.run(
        [python, "-S", "-s", "-c", BOOT + code, json.dumps(settings)],
        env={"PYTHONHASHSEED": "0", **preload_environment()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def preload_environment() -> dict[str, str]:
    from rlm.worker.sandbox.preload import SINGLE_THREADED

    return SINGLE_THREADED


def sealed_child(code: str, python: str = sys.executable, **settings: Any) -> Any:
    return run_child(SEAL + LOSE_FILES + code, python, **settings)


IMPORT_ALL = """
import contextlib, io, warnings
warnings.simplefilter("ignore")
failed = {}
with contextlib.redirect_stdout(io.StringIO()):
    for name in names:
        reason = preload.try_import(name)
        if reason is not None:
            failed[name] = reason
tell([len(names), failed])
"""


def test_nearly_all_of_the_standard_library_imports(python: str) -> None:
    find = """
known = getattr(sys, "stdlib_module_names", settings["known"])  # Since Python 3.10.
names = [name for name in sorted(known) if importlib.util.find_spec(name)]
names.remove("antigravity")  # It opens a browser.
"""
    known = sorted(sys.stdlib_module_names)
    asked, failed = run_child(find + SEAL + LOSE_FILES + IMPORT_ALL, python, known=known)
    expected = set.union(*NOT_OFFERED.values())
    assert {name for name in failed if not name.startswith(("_test", "_xx", "xx"))} <= expected
    assert asked - len(failed) >= 269


def test_sealing_loses_no_submodule(python: str) -> None:
    """Every pure module that imports from disk also does from memory."""
    names = """
finder = sealed.MemoryFinder()
finder.add_folder("", os.path.dirname(os.__file__), standard=True)
odd = ("__main__", "antigravity", "_sysconfigdata")
names = [name for name in sorted(finder.modules) if not name.endswith(odd)]
"""
    asked, before = run_child(names + IMPORT_ALL, python)
    asked_sealed, after = run_child(names + SEAL + LOSE_FILES + IMPORT_ALL, python)
    assert asked == asked_sealed > 450
    lost = {name: after[name] for name in after.keys() - before.keys()}
    # They need a screen, and a library that is loaded by name.
    assert lost.keys() <= {"turtle", "_pyrepl._minimal_curses"}, lost


def test_the_report_counts_sealed_modules(python: str) -> None:
    told = run_child(SEAL + "tell([vars(report), preload.thread_count(), sys.path])", python)
    report, threads, path = told
    assert report["modules"] > 450
    assert report["extensions"] > 30
    assert report["unavailable"] == {}
    assert 4e6 < report["bytecode_bytes"] < 16e6
    assert 1e6 < report["source_bytes"] < 8e6
    assert (threads, path) == (1, [])


BEHAVES = {
    "codecs": ("'é'.encode('cp1250'), b'x'.decode('shift_jis'), 'x'.encode('idna')", "'x', b'x')"),
    "a traceback shows lines of the library": (
        "run(\"import json; json.loads('x')\")",
        "obj, end = self.raw_decode(s, idx=_w(s, 0).end())",
    ),
    "a traceback through a module imported later": (
        "run('import sched; sched.scheduler().enter(1, 1, 1, 1, 1, 1)')",
        "TypeError",
    ),
    "inspect, loaded before": (
        "__import__('inspect').getsource(__import__('json').loads)",
        "def l",
    ),
    "inspect, loaded later": ("__import__('inspect').getsource(__import__('cmd').Cmd)", "OSError"),
    "a warning": ("run('import warnings; warnings.warn(\"careful\")')", "careful"),
    "reloading": ("__import__('importlib').reload(__import__('json')).loads('1')", "1"),
    "importing afresh": ("sys.modules.pop('json') and __import__('json').loads('[2]')", "2"),
    "a missing submodule": ("run('import json.nothing')", "ModuleNotFoundError"),
    "a missing module": ("run('import nothing_at_all')", "ModuleNotFoundError"),
    "a resource that is not there": (
        'run(\'import importlib.resources as r; r.read_text("json", "x")\')',
        "FileNotFoundError",
    ),
    "runpy": ("run('import runpy; runpy.run_module(\"this\")')", "Beautiful is"),
    "pkgutil": ("list(__import__('pkgutil').iter_modules())", "[]"),
    "metadata": (
        "run('import importlib.metadata as m; m.version(\"numpy\")')",
        "PackageNotFoundError",
    ),
    "help": ("run('import pydoc; print(pydoc.render_doc(len))')", "number of items"),
    "locale": ("__import__('locale').setlocale(0), __import__('locale').getlocale()", "'C"),
    "mimetypes": ("__import__('mimetypes').guess_type('a.html')", "text/html"),
    "platform": ("__import__('platform').platform(), __import__('platform').processor()", "-"),
    "os release": ("run('import platform; platform.freedesktop_os_release()')", "Error"),
    "uuid": ("str(__import__('uuid').uuid1()), str(__import__('uuid').uuid4())", "-"),
    "tempfile": ("run('import tempfile; tempfile.TemporaryFile()')", "FileNotFoundError"),
    "getpass": ("run('import getpass; getpass.getuser()')", "Error"),
    "multiprocessing": ("run('import multiprocessing as m; m.Queue()')", "PermissionError"),
    "sqlite": ("__import__('sqlite3').connect(':memory:').execute('select 7').fetchall()", "7"),
    "sqlite file": ("run('import sqlite3; sqlite3.connect(\"a.db\")')", "OperationalError"),
    "ssl": ("int(__import__('ssl').create_default_context().verify_mode)", "2"),
    "find_library": ("__import__('ctypes.util').util.find_library('c')", "None"),
    "sysconfig": ("__import__('sysconfig').get_config_var('EXT_SUFFIX')", ".so"),
    "curses": ("run('import curses; curses.setupterm(\"vt100\", 1)')", "error"),
    "dbm": ('run(\'import dbm; dbm.open("x", "c")\')', "Error"),
    "asyncio": ("__import__('asyncio').run(__import__('asyncio').sleep(0, 5))", "5"),
    "threads": (
        "list(__import__('concurrent.futures').futures.ThreadPoolExecutor(2).map(abs, [-3]))",
        "3",
    ),
    "opening": ("run('open(\"x\")')", "PermissionError"),
}
"""What is done in a sealed child, and a text that its value, output or error has to contain."""

RUN_EACH = """
import contextlib, io, traceback
def run(code):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            exec(code, {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
    return out.getvalue()
found = {}
for label, code in settings["each"].items():
    try:
        found[label] = str(eval(code))
    except BaseException as error:
        found[label] = f"{type(error).__name__}: {error}"
tell(found)
"""


def test_modules_that_need_files_fail_clearly_when_sealed(python: str) -> None:
    each = {label: code for label, (code, _) in BEHAVES.items()}
    found = sealed_child(RUN_EACH, python, each=each)
    wrong = {
        label: found[label]
        for label, (_, expected) in BEHAVES.items()
        if expected not in found[label] or "RecursionError" in found[label]
    }
    assert wrong == {}, json.dumps(wrong, indent=1)


ZONES = """
import datetime, zoneinfo
def offset(key):
    return str(datetime.datetime(2024, 7, 1, tzinfo=zoneinfo.ZoneInfo(key)).utcoffset())
try:
    missing = str(zoneinfo.ZoneInfo("No/Such"))
except zoneinfo.ZoneInfoNotFoundError:
    missing = "not found"
keys = ["Europe/Paris", "America/Argentina/Ushuaia", "UTC"]
tell([list(map(offset, keys)), missing, len(zoneinfo.available_timezones())])
"""


@pytest.mark.skipif(
    not Path("/usr/share/zoneinfo/Europe/Paris").exists(), reason="this machine has no time zones"
)
def test_time_zones_are_read_from_memory(python: str) -> None:
    offsets, missing, count = sealed_child(ZONES, python)
    assert offsets == ["2:00:00", "-1 day, 21:00:00", "0:00:00"]
    assert missing == "not found"
    assert count > 400


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def test_other_packages_are_sealed_with_their_data_files(tmp_path: Path, python: str) -> None:
    write(
        tmp_path,
        {
            "pack/__init__.py": "value = 1",
            "pack/later.py": "from . import value\nfrom .deep.leaf import leaf",
            "pack/deep/leaf.py": "leaf = 2",
            "pack/words.txt": "kept",
            "pack/data/more.txt": "deep",
            "pack/tests/test_it.py": "",
            "space/part/__init__.py": "part = 3",
            "single.py": "single = 4",
            "secret.py": "secret = 5",
        },
    )
    names = {"pack": "pack", "space.part": "space/part", "single": "single.py"}
    code = """
import importlib.resources, pkgutil
import pack.later, space.part, single
told = [pack.later.value, pack.later.leaf, space.part.part, single.single]
told.append(importlib.resources.read_text("pack", "words.txt"))
told.append(pkgutil.get_data("pack", "words.txt").decode())
if sys.version_info >= (3, 10):  # Before, `files` looked at the disk only.
    folder = importlib.resources.files("pack") / "data"
    assert folder.is_dir() and [each.name for each in folder.iterdir()] == ["more.txt"]
    assert folder.joinpath("more.txt").read_text() == "deep"
    with (folder / "more.txt").open("rb") as stream:
        assert stream.read() == b"deep"
told.append(preload.try_import("secret").partition(":")[0])
told.append(preload.try_import("pack.tests.test_it").partition(":")[0])
tell(told)
"""
    roots = [(name, str(tmp_path / path)) for name, path in names.items()]
    told = sealed_child(code, python, roots=roots, search_path=[str(tmp_path)])
    assert told == [1, 2, 3, 4, "kept", "kept", "ModuleNotFoundError", "ModuleNotFoundError"]


@pytest.mark.parametrize("mode", ["missing", "stale", "checked-hash", "unchecked-hash", "damaged"])
def test_bytecode_is_used_only_if_python_would_use_it(tmp_path: Path, mode: str) -> None:
    import py_compile

    file = write(tmp_path, {"pack/__init__.py": "", "pack/mod.py": "value = 1"}) / "pack/mod.py"
    invalidation = {
        "checked-hash": py_compile.PycInvalidationMode.CHECKED_HASH,
        "unchecked-hash": py_compile.PycInvalidationMode.UNCHECKED_HASH,
    }.get(mode, py_compile.PycInvalidationMode.TIMESTAMP)
    if mode != "missing":
        compiled = Path(py_compile.compile(str(file), invalidation_mode=invalidation) or "")
        if mode == "damaged":
            compiled.write_bytes(b"no bytecode")
    file.write_text("value = 22", "utf-8")
    os.utime(file, (1, 1))
    roots = [("pack", str(tmp_path / "pack"))]
    told = sealed_child("import pack.mod\ntell(pack.mod.value)", roots=roots)
    assert told == (1 if mode == "unchecked-hash" else 22)


def test_a_damaged_extension_is_recorded_and_not_raised(tmp_path: Path) -> None:
    import importlib.machinery

    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    write(tmp_path, {"pack/__init__.py": "", f"pack/_fast{suffix}": "not a library"})
    told = sealed_child(
        "tell([report.unavailable, preload.try_import('pack')])",
        roots=[("pack", str(tmp_path / "pack"))],
        search_path=[str(tmp_path)],
    )
    assert told[1] is None
    assert list(told[0]) == ["pack._fast"]
    assert told[0]["pack._fast"].startswith("ImportError: ")
