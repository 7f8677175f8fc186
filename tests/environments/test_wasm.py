"""`environment="wasm"`: what it keeps, what it says it lacks, and that hostile guests stay in."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("eryx", reason="pyeryx is not installed; `make test-environments` installs it")

from rlm.environments.wasm import WasmEnvironment
from rlm.environments.wasm.process import ChildProcess, private_folder
from rlm.errors import ConfigError, ProtocolViolation, SessionDied, SessionError
from rlm.testing.attacks import ATTACKS, attack
from rlm.testing.conformance import CHECKS, Report, check
from rlm.testing.conformance.bench import Bench, Repl
from tests.test_other_systems import on

GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
SLOW = {"concurrency"}
"""Rows that wait in vain for calls of other threads take a minute each."""


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime unpacks itself once for all tests, and not into the user's folders."""
    folder = tmp_path_factory.mktemp("caches")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    return folder / "rlm" / "wasm"


@pytest.fixture
async def environment() -> AsyncIterator[WasmEnvironment]:
    made = WasmEnvironment(warm_sessions=0)
    yield made
    await made.close()


@pytest.fixture
async def repl(environment: WasmEnvironment) -> AsyncIterator[Repl]:
    async with Bench(environment).opened() as opened:
        yield opened


def told(report: Report) -> str:
    return "\n".join(f"{row.verdict} {row.group}: {row.name} ({row.detail})" for row in report.bad)


# -- the suites ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "group",
    [pytest.param(each, marks=[pytest.mark.heavy] if each in SLOW else []) for each in GROUPS],
)
async def test_wasm_conforms_except_for_the_features_it_declares_missing(group: str) -> None:
    environment = WasmEnvironment()
    try:
        report = await check(environment, only=f"{group}: ")
    finally:
        await environment.close()
    assert not report.bad, told(report)
    not_offered = [
        f"{row.group}: {row.name}" for row in report.rows if row.verdict == "not offered"
    ]
    said = [part for part in WasmEnvironment.lacks if part.startswith(f"{group}: ")]
    assert len(not_offered) == len(said), (not_offered, said)
    assert all(any(part in row for row in not_offered) for part in said)


@pytest.mark.heavy
@pytest.mark.parametrize("group", list(dict.fromkeys(each.group for each in ATTACKS)))
async def test_no_attack_succeeds(group: str) -> None:
    environment = WasmEnvironment()
    try:
        report = await attack(environment, only=f"{group}: ")
    finally:
        await environment.close()
    assert not {row.name for row in report.rows if row.verdict in {"SUCCEEDED", "visible"}}
    assert not report.bad, told(report)


# -- hostile guests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "_eryx._eryx_report_output(0, b'garbage that is no frame at all')",
        "_eryx._eryx_report_output(0, b'\\xff' * 64)",
        "while True: _eryx._eryx_report_output(0, bytes(1 << 20))",
    ],
)
async def test_malformed_frames_end_only_their_own_session(repl: Repl, code: str) -> None:
    async with repl.bench.opened() as other:
        with pytest.raises(ProtocolViolation):
            await repl.run(f"import _eryx\n{code}")
        await other.lives()


async def test_forged_receipts_do_not_harm_other_sessions(repl: Repl) -> None:
    code = (
        "import _eryx\nfor i in range(3000): _eryx._eryx_report_output(1, i.to_bytes(8, 'little'))"
    )
    async with repl.bench.opened() as other:
        try:
            await repl.run(code)
            await repl.run("llm_query('x' * 10**6)", timeout_seconds=2)
        except SessionError:
            pass  # Damage to its own file affects only itself.
        await other.lives()


@pytest.mark.heavy
async def test_a_guest_that_exhausts_its_memory_is_ended(environment: WasmEnvironment) -> None:
    async with Bench(environment).opened(cell_memory_bytes=16 << 20) as repl:
        session: Any = repl.session
        session._stream.read(False)
        flood = "piece = bytes(1 << 20)\nwhile True: _eryx._eryx_report_output(0, piece)"
        with pytest.raises(SessionDied, match="MB of memory"):
            await repl.run(f"import _eryx\n{flood}", timeout_seconds=1000)


async def test_closing_the_shared_file_ends_only_that_session(repl: Repl) -> None:
    async with repl.bench.opened() as other:
        await repl.run("import os\nos.closerange(3, 256)\nllm_query('anybody')")
        with pytest.raises(SessionDied):
            await repl.run("1")
        await other.lives()


async def test_raw_writes_to_the_standard_streams_are_dropped(repl: Repl) -> None:
    await repl.shows("import os\nos.write(1, b'out'), os.write(2, b'err')", "(3, 3)")
    await repl.lives()


# -- interrupts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hang",
    [
        "for i in range(10**9):\n    for j in range(1000): pass",
        "def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)\nfib(60)",
        "rows = []\nfor i in range(10**9): rows.append({'i': i})",
        "import itertools\nfor i in itertools.count(): print(i)",
    ],
)
async def test_slow_python_is_interrupted_and_keeps_its_variables(repl: Repl, hang: str) -> None:
    result = await repl.run(f"kept = 5\n{hang}", timeout_seconds=0.5)
    assert result.interrupted
    await repl.shows("kept", "5")


async def test_a_loop_that_cannot_be_interrupted_ends_the_session_with_a_reason(repl: Repl) -> None:
    with pytest.raises(SessionDied, match="ignored 3 interrupts"):
        await repl.run("n = 0\nfor i in range(10**12): n += i", timeout_seconds=0.2)


async def test_more_than_a_thousand_calls_in_one_cell(repl: Repl) -> None:
    code = "[llm_query(str(i)) for i in range(1500)] == ['re:' + str(i) for i in range(1500)]"
    await repl.shows(code, "True")


# -- substitutes for what WebAssembly lacks --------------------------------------------------------


async def test_thread_pools_run_their_tasks_in_turn_and_keep_errors(repl: Repl) -> None:
    await repl.run("from concurrent.futures import ThreadPoolExecutor, as_completed")
    await repl.shows(
        "with ThreadPoolExecutor(8) as pool:\n"
        "    futures = [pool.submit(llm_query, str(i)) for i in range(3)]\n"
        "    bad = pool.submit(lambda: 1 / 0)\n"
        "sorted(f.result() for f in as_completed(futures)), type(bad.exception()).__name__",
        "(['re:0', 're:1', 're:2'], 'ZeroDivisionError')",
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import threading\nl = threading.Lock()\nl.acquire(); l.acquire()", "lock is held"),
        ("import queue\nqueue.Queue().get()", "nothing can end this wait"),
        ("import threading\nthreading.Thread(target=print).start()", "can't start new thread"),
    ],
)
async def test_waiting_for_another_thread_is_an_error_and_not_fatal(
    repl: Repl, code: str, words: str
) -> None:
    await repl.fails(code, "RuntimeError", words)
    await repl.lives()


async def test_brackets_in_strings_do_not_count_as_nesting(repl: Repl) -> None:
    await repl.shows(f"len({'(' * 500!r})", "500")
    await repl.fails("[" * 120 + "]" * 120, "SyntaxError", "nested")
    await repl.shows("[" * 80 + "]" * 80, "[" * 80 + "]" * 80)


# -- processes and files ---------------------------------------------------------------------------


async def test_no_spare_is_prepared_while_the_environment_closes() -> None:
    environment = WasmEnvironment(warm_sessions=1)
    async with Bench(environment).opened():
        while not environment._spares:
            await asyncio.sleep(0.01)
        (spare,) = environment._spares
        closing = asyncio.create_task(environment.close())
        while environment._spares:
            await asyncio.sleep(0)
        environment._refill(spare.guest_bytes)  # As the timer of another session may.
        await closing
    assert not environment._spares


async def test_a_spare_is_used_and_a_dead_one_replaced() -> None:
    environment = WasmEnvironment(warm_sessions=1)
    bench = Bench(environment)
    try:
        async with bench.opened() as first:
            while not environment._spares:
                await asyncio.sleep(0.01)
            (spare,) = environment._spares
            spare.kill()
            async with bench.opened() as second:
                await second.lives()
            assert spare not in environment._spares
            await first.lives()
    finally:
        await environment.close()
    assert not environment._spares


async def test_a_context_is_not_written_to_a_named_file(repl: Repl, own_cache: Path) -> None:
    await repl.load("secret-of-the-context" * 1000)
    await repl.lives()
    assert kinds_of_folders(own_cache) == {"compiled", "eryx"}


def kinds_of_folders(cache: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in cache.iterdir()}


async def test_concurrent_starts_compile_the_worker_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = WasmEnvironment(warm_sessions=0)
    try:
        opened = [Bench(environment).open() for _ in range(3)]
        for repl in await asyncio.gather(*opened):
            await repl.lives()
    finally:
        await environment.close()
    assert kinds_of_folders(tmp_path / "rlm" / "wasm") == {"compiled", "eryx"}
    assert len(list((tmp_path / "rlm" / "wasm").glob("compiled-*"))) == 1


@pytest.mark.parametrize("is_discarded", [True, False])
async def test_a_child_killed_while_it_starts_leaves_no_folder(
    own_cache: Path, is_discarded: bool
) -> None:
    process = ChildProcess(256 << 20)
    while "unfinished" not in kinds_of_folders(own_cache):
        await asyncio.sleep(0.001)
    process.kill()
    if is_discarded:
        await asyncio.to_thread(process.discard)
    else:
        await process.wait()
        await process.clean_up()
        process.connection.close()
    assert "unfinished" not in kinds_of_folders(own_cache)


HOST = """
import asyncio
from rlm.testing.conformance.bench import Bench
from rlm.environments.wasm import WasmEnvironment
async def main():
    repl = await Bench(WasmEnvironment(warm_sessions=0)).open()
    print(repl.session._worker._process.pid, flush=True)
    await repl.run("while True: pass", timeout_seconds=1000)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="looks for the process as Unix does")
def test_a_child_dies_with_its_killed_host() -> None:
    host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE)
    assert host.stdout is not None
    pid = int(host.stdout.readline())
    os.kill(pid, 0)
    host.send_signal(signal.SIGKILL)
    host.wait()
    host.stdout.close()
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    pytest.fail("the child outlives its host")


# -- what it says about itself ---------------------------------------------------------------------


async def test_an_old_python_or_a_missing_package_is_explained(
    environment: WasmEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WasmEnvironment.problem() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "pip install 'recursivelm[wasm]'" in (WasmEnvironment.problem() or "")
    monkeypatch.setattr("sys.version_info", (3, 11, 9))
    assert "Python 3.12" in (WasmEnvironment.problem() or "")
    with pytest.raises(ConfigError, match=r"Python 3\.12"):
        await Bench(environment).open()


async def test_the_description_names_the_isolation_and_missing_features(
    environment: WasmEnvironment,
) -> None:
    facts = await environment.describe()
    assert "WebAssembly" in facts["isolation"]
    assert any("threads" in line for line in facts["missing"])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_a_cache_folder_writable_by_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = private_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="other users"):
        private_folder()


# -- on other systems ------------------------------------------------------------------------------

ELSEWHERE = """
from tests.other_systems import let_children_start
let_children_start()
from rlm import RLM
context = "x\\n" * 9_000 + "The secret number is 42.\\n"
with RLM("offline/extractive", journal=True) as rlm:
    result = rlm.ask("What is the secret number?", context, run_id="first")
    print(result.answer.splitlines()[-1].strip())
    print(*[each.environment for each in result.events if hasattr(each, "environment")])
    with rlm.chat("The secret number is 43.") as chat:
        print(chat.ask("What is the secret number?").answer.splitlines()[-1].strip())
"""
REPLAY = """
from tests.other_systems import let_children_start
let_children_start()
from rlm.cli import main
main(["replay", "first"])
"""


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_auto_answers_whole_queries_on_other_systems(system: str, tmp_path: Path) -> None:
    done = on(system, tmp_path, ELSEWHERE)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines() == [
        "The secret number is 42.",
        "wasm wasm",
        "The secret number is 43.",
    ]
    assert not done.stderr
    again = on(system, tmp_path, REPLAY)
    assert again.stdout.startswith("OK: run first was replayed without a difference"), again.stderr[
        -2_000:
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="takes something away from Linux")
def test_auto_chooses_webassembly_where_system_calls_cannot_be_filtered(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ELSEWHERE.partition("let_children_start()\n")[2])
    confine = Path(__file__).with_name("confine.py")
    done = subprocess.run(
        [sys.executable, confine, "--no-seccomp", "--", sys.executable, program],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[:2] == ["The secret number is 42.", "wasm wasm"], done.stderr
    assert "skipped 'local': no sandbox for model-written code here" in done.stderr
