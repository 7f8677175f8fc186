"""What only the local sandbox has: checkpoints, limits, grants, packages, exports, its report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.environments import _clock, _forked
from rlm.environments import _exports as exports
from rlm.environments.local import LocalEnvironment
from rlm.errors import ConfigError, SessionDied, SessionRestored
from rlm.wiring import registry
from tests.environments.conftest import FakeHost, Repl, StoredContext, checkpointed, out_of_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="its layers are Linux's")


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    """Opens REPLs with options of the environment; they are closed after the test."""
    monkeypatch.setattr(_forked, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(_clock, "_GRACE_SECONDS", 0.1)
    environments: list[LocalEnvironment] = []

    async def open_one(**options: Any) -> Repl:
        environments.append(LocalEnvironment(**options))
        host = FakeHost()
        return Repl(await environments[-1].open(host, {"cell_memory_bytes": 300 << 20}), host)

    yield open_one
    for environment in environments:
        await environment.close()


LOSSES = {
    "a loop in C": "sum(range(10**12))",
    "os._exit": "import os; os._exit(3)",
    "the status of a checkpoint": "import os; os._exit(75)",
    "a crash": "import ctypes; ctypes.string_at(0)",
}


@pytest.mark.parametrize("code", LOSSES.values(), ids=LOSSES)
async def test_variables_survive_the_loss_of_the_worker(opened: Any, code: str) -> None:
    repl = await opened()
    await repl.load("the context")
    await repl.run("notes = {'a': 1}\nimport random, asyncio\nawait asyncio.sleep(0)")
    await checkpointed(repl)
    for _ in range(2):  # The copy is as good as the original: it can be lost as well.
        with pytest.raises(SessionRestored) as loss:
            await out_of_time(repl, f"notes['b'] = 2\n{code}")
        assert loss.value.lost_variables == ()
        assert repl.session.variables == ("notes",)
        assert await repl.show("notes, context, llm_query('x')") == (
            "({'a': 1}, 'the context', 're:x')"
        )
        assert await repl.show("import asyncio\nawait asyncio.sleep(0, 'loop')") == "'loop'"
        await checkpointed(repl)


async def test_variables_set_after_the_checkpoint_are_named_as_lost(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    repl = await opened()
    await repl.run("old = 1")
    await checkpointed(repl)
    monkeypatch.setattr(_forked, "IDLE_SECONDS", 1000.0)
    await repl.run("new = 2\nold = 3")
    with pytest.raises(SessionRestored) as loss:
        await repl.run("import os; os._exit(1)")
    assert set(loss.value.lost_variables) == {"new", "old"}
    assert await repl.show("old, 'new' in globals()") == "(1, False)"


async def test_random_numbers_continue_from_the_checkpoint(opened: Any) -> None:
    repl = await opened()
    await repl.run("import random; random.seed(7); random.random()")
    await checkpointed(repl)
    with pytest.raises(SessionRestored):
        await repl.run("random.random(); import os; os._exit(1)")
    after = await repl.show("random.random()")
    assert after == await (await opened()).show(
        "import random; random.seed(7); random.random(); random.random()"
    )


async def test_a_late_answer_does_not_reach_the_restored_worker(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host may ignore that a call was cancelled; the copy uses the same call ids again."""
    repl = await opened()
    await repl.run("kept = 1")
    await checkpointed(repl)
    answer, released, late = repl.host.answer, asyncio.Event(), asyncio.Event()

    async def answered(kind: str, arguments: dict[str, Any], parts: list[str]) -> Any:
        if list(parts) == ["late"]:
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()
            late.set()
            return {}, ["too late"]
        released.set()
        await late.wait()
        await asyncio.sleep(0.05)
        return await answer(kind, arguments, parts)

    monkeypatch.setattr(repl.host, "answer", answered)
    with pytest.raises(SessionRestored):
        await repl.run(
            "import os, threading, time\n"
            "threading.Thread(target=llm_query, args=('late',)).start()\n"
            "time.sleep(0.3)\nos._exit(1)"
        )
    assert await repl.show("llm_query('quick'), kept") == "('re:quick', 1)"


async def test_no_checkpoint_is_taken_while_user_threads_live(opened: Any) -> None:
    repl = await opened()
    await repl.run("kept = 1")
    await checkpointed(repl)
    await repl.run(
        "import threading\ngo = threading.Event()\nthreading.Thread(target=go.wait).start()"
    )
    await asyncio.sleep(0.2)
    with pytest.raises(SessionRestored) as loss:
        await repl.run("import os; os._exit(1)")
    assert loss.value.lost_variables == ("go",)
    assert await repl.show("kept") == "1"


async def test_checkpoints_can_be_switched_off(opened: Any) -> None:
    repl = await opened(checkpoints=False)
    await repl.run("kept = 1")
    await asyncio.sleep(0.1)
    with pytest.raises(SessionDied, match="exited with status 1"):
        await repl.run("import os; os._exit(1)")


async def test_a_session_that_resists_being_stopped_is_not_restored(opened: Any) -> None:
    """Code that will not go is taken down with its checkpoint."""
    repl = await opened()
    await repl.run("kept = 1")
    await checkpointed(repl)
    hide = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [15, 2])\n"
    with pytest.raises(SessionDied):
        await out_of_time(repl, hide + "sum(range(10**12))")
    with pytest.raises(SessionDied):
        await repl.run("1")


async def test_exceeding_the_processor_time_is_an_error_in_the_cell(opened: Any) -> None:
    repl = await opened(cpu_seconds=1)
    result = await repl.run("kept = 1\nwhile True: pass")
    assert result.error is not None
    assert result.error.type == "CpuTimeExceeded"
    assert "submit what you have" in result.error.message
    assert await repl.show("kept") == "1"


async def test_a_full_disk_is_an_error_in_the_cell(opened: Any) -> None:
    repl = await opened(scratch_bytes=1 << 20)
    if not await repl.show("import os; os.environ.get('TMPDIR', '')"):
        pytest.skip("there is no scratch folder here")
    kind, _ = await repl.fail(
        "with open('f', 'wb') as f:\n    for _ in range(40): f.write(bytes(1 << 16))"
    )
    assert kind == "OSError"
    assert await repl.show("os.remove('f'); len(open('g', 'w').write('x') * 'y')") == "1"


async def test_the_number_of_threads_is_limited(opened: Any) -> None:
    repl = await opened(max_threads=20)
    code = (
        "import threading\nthreading.stack_size(1 << 18)\nstop = threading.Event()\ncount = 0\n"
        "try:\n    while count < 100:\n"
        "        threading.Thread(target=stop.wait).start(); count += 1\n"
        "except RuntimeError: pass\nstop.set()\ncount"
    )
    assert int(await repl.show(code)) < 25


async def test_only_granted_paths_can_be_read(opened: Any, tmp_path: Path) -> None:
    granted, other = tmp_path / "granted", tmp_path / "other"
    for folder in (granted, other):
        folder.mkdir()
        (folder / "file.txt").write_text(folder.name)
        folder.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o001 == 0 and str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    repl = await opened(read_only_paths=[granted])
    assert await repl.show(f"open({str(granted / 'file.txt')!r}).read()") == "'granted'"
    kind, _ = await repl.fail(f"open({str(other / 'file.txt')!r})")
    assert kind in {"FileNotFoundError", "PermissionError"}
    kind, _ = await repl.fail(f"open({str(granted / 'new')!r}, 'w')")
    assert kind in {"OSError", "PermissionError"}


def test_a_granted_path_must_exist() -> None:
    with pytest.raises(ConfigError, match="which does not exist"):
        LocalEnvironment(read_only_paths=["/no/such/folder"])


async def test_an_allowed_package_can_be_imported(opened: Any) -> None:
    repl = await opened(packages=["msgspec"])
    assert await repl.show("import msgspec; msgspec.json.decode(b'[1]')") == "[1]"
    kind, _ = await repl.fail("import click")
    assert kind == "ModuleNotFoundError"
    kind, _ = await (await opened()).fail("import msgspec")
    assert kind == "ModuleNotFoundError"


async def test_without_namespaces_and_landlock_the_sandbox_is_sealed(opened: Any) -> None:
    repl = await opened(without=["namespaces", "landlock"])
    assert "sealed" in repl.session.layers
    assert (
        await repl.show("import statistics, colorsys; colorsys.rgb_to_hsv(1, 1, 1)")
        == "(0.0, 0.0, 1)"
    )
    kind, _ = await repl.fail("open('/etc/passwd')")
    assert kind == "PermissionError"


async def test_without_any_file_system_layer_no_session_opens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    everything = ["namespaces", "landlock", "sealed"]
    with pytest.raises(ConfigError, match="files can't be hidden"):
        await LocalEnvironment(without=everything).describe()
    unsafe = LocalEnvironment(without=everything, allow_unsafe=True)
    await unsafe.open(FakeHost(), {})
    await unsafe.close()
    assert "cells are not isolated here: " in caplog.text
    report = await unsafe.describe()
    assert report["file_system"] == []
    assert any(line.startswith("sealed: ") for line in report["missing"])


async def test_systems_other_than_linux_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="can't isolate code on this system"):
        await LocalEnvironment().describe()


def test_options_are_checked_by_name() -> None:
    with pytest.raises(ConfigError, match=r"has no option 'image'; options: packages, "):
        registry.make_environment("local", {"image": "x"})
    assert registry.make_environment("local", {"warm_sessions": 0}).name == "local"


# -- exports ---------------------------------------------------------------------------------------


async def test_files_written_by_a_session_are_exported(opened: Any, tmp_path: Path) -> None:
    environment, host = LocalEnvironment(export_to=tmp_path), FakeHost()
    for _ in range(2):
        session = await environment.open(host, {"label": "run/1"})
        repl = Repl(session, host)
        if not await repl.show("import os; os.environ.get('TMPDIR', '')"):
            pytest.skip("there is no scratch folder here")
        await repl.run(
            "os.makedirs('a/b'); open('a/b/c.txt', 'w').write('hi')\n"
            "open('big', 'wb').write(bytes(17 << 20)); os.symlink('/etc/passwd', 'link')\n"
            "open('two\\nlines', 'w').close(); os.mkfifo"
        )
        await session.close()
    await environment.close()
    for folder in ("run-1", "run-1-2"):
        files = {str(p.relative_to(tmp_path / folder)) for p in (tmp_path / folder).rglob("*")}
        assert files == {"a", "a/b", "a/b/c.txt", "big"}
        assert (tmp_path / folder / "a/b/c.txt").read_text() == "hi"
        assert (tmp_path / folder / "big").stat().st_size == 17 << 20


async def test_an_export_stops_at_its_limit(tmp_path: Path) -> None:
    async def endless(name: str, offset: int) -> bytes:
        return b"x" * 1000

    files = [("a", 1), ("b", 1)]
    target = await exports.export_files(files, endless, tmp_path, label="..", max_bytes=2500)
    assert target == tmp_path / "session"
    assert [path.name for path in target.iterdir()] == ["a"]
    assert (target / "a").stat().st_size == 2500


@given(
    names=st.lists(st.text(max_size=20) | st.sampled_from(["..", "/x", "a/../b", "a/", "a", "a/b"]))
)
def test_no_file_name_leaves_the_export_folder(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("export")

    async def read(name: str, offset: int) -> bytes:
        return b"" if offset else b"data"

    export = exports.export_files(
        [(name, 4) for name in names], read, folder / "in", label="s", max_bytes=10**6
    )
    asyncio.run(export)
    outside = [path for path in folder.rglob("*") if not path.is_relative_to(folder / "in")]
    assert outside == []


async def test_a_large_context_is_shared(opened: Any) -> None:
    repl = await opened()
    data = json.dumps("é" * 100_000).encode()
    source = StoredContext("json", data)
    await repl.session.load("context", source)
    assert (
        await repl.show("type(context) is str, len(context), context[:2]") == "(True, 100000, 'éé')"
    )


# -- sessions kept ready --------------------------------------------------------------------------


def ready_sessions(zygote: Any) -> list[int]:
    """How many are kept ready for each kind of settings, the latest kind last."""
    return [len(each) for each in zygote._ready.values()]


async def until_ready(zygote: Any, expected: list[int]) -> None:
    async with asyncio.timeout(60):
        while ready_sessions(zygote) != expected:
            await asyncio.sleep(0.005)


async def test_a_warm_session_is_used_only_with_its_own_settings() -> None:
    environment = LocalEnvironment(warm_sessions=1, cpu_seconds=3_500)
    plain: dict[str, Any] = {"seed": 1}
    tooled: dict[str, Any] = {"seed": 1, "tools": [{"name": "weigh", "description": "Weighs."}]}
    first = await environment.open(FakeHost(), plain)
    zygote: Any = await environment._zygote()
    await until_ready(zygote, [1])
    other = Repl(await environment.open(FakeHost(), tooled), FakeHost())
    assert ready_sessions(zygote) == [1]  # it was not the one for these settings
    assert await other.show("weigh.__name__, 'weigh'") == "('weigh', 'weigh')"
    await until_ready(zygote, [1, 1])
    again = Repl(await environment.open(FakeHost(), plain), FakeHost())
    assert ready_sessions(zygote) == [0, 1]
    assert await again.show("'weigh' in globals()") == "False"
    await until_ready(zygote, [1, 1])
    await first.close()
    await environment.close()


async def test_of_many_settings_the_oldest_are_forgotten() -> None:
    environment = LocalEnvironment(warm_sessions=1, cpu_seconds=3_501)
    for seed in range(6):
        await (await environment.open(FakeHost(), {"seed": seed})).close()
    zygote: Any = await environment._zygote()
    async with asyncio.timeout(60):
        while [json.loads(each[17:])["seed"] for each in zygote._ready] != [2, 3, 4, 5]:
            await asyncio.sleep(0.005)
    await until_ready(zygote, [1, 1, 1, 1])
    await environment.close()


async def test_settings_too_large_for_a_warm_session_are_sent_when_it_opens() -> None:
    environment = LocalEnvironment(warm_sessions=1, cpu_seconds=3_502)
    long = {"tools": [{"name": "weigh", "description": "x" * 200_000}]}
    for _ in range(2):
        repl = Repl(await environment.open(FakeHost(), long), FakeHost())
        assert await repl.show("len(weigh.__doc__)") == "200000"
        await until_ready(await environment._zygote(), [1])
    await environment.close()
