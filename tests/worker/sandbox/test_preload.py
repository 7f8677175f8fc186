"""What the zygote imports ahead: step by step, failures remembered, nothing left behind."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm.worker.sandbox.preload import COMMON_MODULES, Preloading, thread_count, try_import
from tests.worker.sandbox.test_sealed import python, run_child

__all__ = ["python"]

MODULES = {
    "broken_by_error.py": "1 / 0",
    "broken_by_exit.py": "raise SystemExit('bye')",
    "starts_a_thread.py": (
        "import threading\nend = threading.Event()\n"
        "thread = threading.Thread(target=end.wait, daemon=True)\nthread.start()"
    ),
    "harmless.py": "value = 1",
    "halfway/__init__.py": (
        "from halfway import part, deep\nimport harmless\nraise OSError('no luck')"
    ),
    "halfway/part.py": "",
    "halfway/deep/__init__.py": "import halfway.deep.inner",
    "halfway/deep/inner.py": "",
}


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_each_step_imports_one_module(on_path: None) -> None:
    preloading = Preloading(["harmless"], modules=["json", "harmless", "re"])
    seen = []
    while not preloading.done:
        preloading.step()
        seen.append(list(preloading.imported))
    assert seen[:4] == [["json"], ["json", "harmless"], ["json", "harmless", "re"], seen[3]]
    assert seen[-1] == ["json", "harmless", "re"]  # Once, though two asked for it.
    preloading.step()
    assert preloading.imported == seen[-1]


def test_failures_are_remembered_with_their_reason(on_path: None) -> None:
    preloading = Preloading(["broken_by_error", "broken_by_exit", "not_there", "harmless"], [])
    preloading.run()
    assert preloading.imported == ["harmless"]
    assert preloading.failures == {
        "broken_by_error": "ZeroDivisionError: division by zero",
        "broken_by_exit": "SystemExit: bye",
        "not_there": "ModuleNotFoundError: No module named 'not_there'",
    }
    assert preloading.threads_started_by == {}


def test_a_package_that_fails_halfway_leaves_no_modules_loaded(on_path: None) -> None:
    """The next one who tries gets the same error; what it needs besides stays loaded."""
    reasons = [try_import("halfway") for _ in range(2)]
    assert reasons == ["OSError: no luck"] * 2
    assert not [name for name in sys.modules if name.startswith("halfway")]
    assert "harmless" in sys.modules


def test_a_module_that_starts_threads_is_named(on_path: None) -> None:
    preloading = Preloading(["harmless", "starts_a_thread"], [])
    try:
        preloading.run()
        assert preloading.threads_started_by == {"starts_a_thread": 1}
    finally:
        started = sys.modules["starts_a_thread"]
        started.end.set()
        started.thread.join()


def test_threads_can_be_counted_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = thread_count()

    def forbidden(path: str, **_: object) -> os.stat_result:
        raise PermissionError(path)

    monkeypatch.setattr(os, "stat", forbidden)
    assert 1 <= thread_count() <= counted


def test_threads_not_started_by_python_are_counted(python: str) -> None:
    """By the name of /proc, and by an open folder when there is no such name any more."""
    code = """
import ctypes
start = ctypes.CDLL(None).pthread_create
wait = ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p)
folder = os.open("/proc", os.O_RDONLY)
counts = [preload.thread_count(), preload.thread_count(folder)]
for _ in range(3):
    start(ctypes.byref(ctypes.c_ulong()), None, wait, None)
counts += [preload.thread_count(), preload.thread_count(folder), preload._thread._count()]
tell(counts)
"""
    assert run_child(code, python) == [1, 1, 4, 4, 0]


def test_a_successful_import_has_no_failure_reason() -> None:
    assert try_import("json") is None


def test_importing_common_modules_leaves_nothing_behind(python: str) -> None:
    """On a fresh interpreter: all of them import, no thread, no open file, no event loop."""
    code = """
def open_files():
    folder = next((each for each in ("/proc/self/fd", "/dev/fd") if os.path.isdir(each)), None)
    return len(os.listdir(folder)) if folder else 0
before = open_files()
preloading = preload.Preloading()
preloading.run()
import asyncio
tell([
    preloading.imported, preloading.failures, preloading.threads_started_by,
    open_files() - before, preload.thread_count(), asyncio._get_running_loop() is None,
])
"""
    imported, failures, threads_by, files, threads, no_loop = run_child(code, python)
    assert imported == list(COMMON_MODULES)
    assert (failures, threads_by, files, threads, no_loop) == ({}, {}, 0, 1, True)


def test_no_module_is_listed_twice() -> None:
    assert len(set(COMMON_MODULES)) == len(COMMON_MODULES)
