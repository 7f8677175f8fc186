"""What packages do while the zygote imports them: they write files, and start threads."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.sandbox.hosts import NOW, WARM, Host
from tests.worker.sandbox.processes import children_of, wait_until_gone
from tests.worker.sandbox.runs import public_folder
from tests.worker.sandbox.test_zygote import MIDDLE, user

__all__ = ["user"]

WRITES_ON_IMPORT = """
import os, pathlib, tempfile
place = tempfile.mkdtemp()
pathlib.Path.home().joinpath(".config").mkdir()
pathlib.Path(place, "cache").write_text("what it found out")
"""

STARTS_THREADS = """
import ctypes, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
library = ctypes.CDLL(None)
pause = ctypes.cast(library.pause, ctypes.c_void_p)
library.pthread_create(ctypes.byref(ctypes.c_ulong()), None, pause, None)
"""


@pytest.fixture
def written_packages() -> Iterator[Path]:
    """A folder with one that needs a place to write to, and one that starts threads."""
    with tempfile.TemporaryDirectory(dir=public_folder()) as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "writes_on_import.py").write_text(WRITES_ON_IMPORT)
        (folder / "starts_threads.py").write_text(STARTS_THREADS)
        yield folder


def test_a_package_may_write_while_it_is_imported(user: str, written_packages: Path) -> None:
    with Host(user, packages={"writes_on_import": written_packages}) as host:
        if not host.report["namespaces"]:
            pytest.skip("; ".join(host.report["missing"]))
        assert host.report["not_loaded"] == {}
        session = host.open()
        seen = "import os, writes_on_import as w; print(os.listdir('/sandbox'), w.place[:9])"
        assert session.run(seen) == "[] /sandbox/"
        session.run("open('mine', 'w').close()")
        assert host.open().run("import os; print(os.listdir('/sandbox'))") == "[]"


@pytest.mark.parametrize("forbid", [(), MIDDLE, ("namespaces", "landlock")], ids=len)
def test_threads_started_by_a_package_do_not_run_in_the_zygote(
    user: str, forbid: tuple[str, ...], written_packages: Path
) -> None:
    """The zygote has none, so nobody can be forked while one of them holds a lock."""
    with Host(user, forbid, packages={"starts_threads": written_packages}) as host:
        assert host.report["not_loaded"] == {}
        assert host.report["without_threads"] == ["starts_threads"]
        (host.zygote,) = children_of(host.zygote)
        assert len(os.listdir(f"/proc/{host.zygote}/task")) == 1  # noqa: PTH208
        sessions = [host.open(kind) for kind in (NOW, WARM)]
        count = "import threading, starts_threads; print(threading.active_count())"
        assert [session.run(count) for session in sessions] == ["1", "1"]
        assert len(host.workers()) == 2


@pytest.mark.parametrize("victim", ["zygote", "with threads", "process"])
def test_killing_any_of_the_three_processes_ends_everything(
    user: str, victim: str, written_packages: Path
) -> None:
    with Host(user, packages={"starts_threads": written_packages}) as host:
        with_threads = host.zygote
        (host.zygote,) = children_of(with_threads)
        session = host.open()
        everybody = {
            "zygote": host.zygote,
            "with threads": with_threads,
            "process": host.process.pid,
        }
        workers = host.workers()
        os.kill(everybody[victim], signal.SIGKILL)
        wait_until_gone(*everybody.values(), *workers)
        assert not session.answers()
