"""`rlm_exec`: clients' code runs in the sandbox, within limits, and leaves nothing behind."""

import asyncio
from pathlib import Path

import pytest

from rlm.gateway.errors import Refused
from rlm.gateway.executing import MAX_AT_ONCE_EACH, MAX_INTERPRETERS_EACH, Executor
from rlm.gateway.gateway import Gateway
from tests.fakes import PlanEnvironment
from tests.gateway.recipes import Recipe

ME = "ada"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.txt").write_text("alpha\nbeta\n")
    (root / "b.bin").write_bytes(b"\0\1")
    return Recipe(tmp_path, options={"exec_seconds": 1.0})


async def opened(recipe: Recipe) -> tuple[Gateway, str, str]:
    gateway = recipe.gateway()
    session = gateway.create_session(ME)["session"]
    return gateway, session, (await gateway.open(ME, session, "a.txt"))["handle"]


async def test_variables_persist_and_only_chosen_files_are_available(recipe: Recipe) -> None:
    gateway, session, handle = await opened(recipe)
    try:
        first = await gateway.execute(ME, session, "n = len(files); print(list(files))", [handle])
        assert (first["output"], first["fresh"]) == (f"['{handle}']\n", True)
        second = await gateway.execute(ME, session, f"print(n, files['{handle}'].split())")
        assert (second["output"], second["fresh"]) == ("1 ['alpha', 'beta']\n", False)
        other = gateway.create_session(ME)["session"]
        alone = await gateway.execute(ME, other, "print('n' in globals())")
        assert alone["output"] == "False\n"
    finally:
        await gateway.close()


async def test_an_answer_is_reported_once(recipe: Recipe) -> None:
    gateway, session, _ = await opened(recipe)
    try:
        code = "answer['content'] = 'first'; answer['ready'] = True"
        assert (await gateway.execute(ME, session, code))["output"] == "first"
        assert (await gateway.execute(ME, session, "print(2)"))["output"] == "2\n"
    finally:
        await gateway.close()


async def test_errors_in_code_are_returned_as_text(recipe: Recipe) -> None:
    gateway, session, handle = await opened(recipe)
    try:
        for code, expected in (
            ("1/0", "ZeroDivisionError"),
            ("def f(:", "SyntaxError"),
            ("while True: pass", "TimeoutError"),
            ("llm_query('x')", "no models and no tools"),
            ("call_tool('x')", "no models and no tools"),
            ("open('/etc/passwd')", "FileNotFoundError"),
            ("'x' * 10**11", "MemoryError"),
            ("import os; os._exit(3)", "the interpreter ended"),
        ):
            done = await gateway.execute(ME, session, code)
            assert expected in done["error"], (code, done)
        after = await gateway.execute(ME, session, "print(1)")
        assert (after["output"], after["fresh"]) == ("1\n", True)
        import_error = await gateway.execute(ME, session, "import json; json.loads('{')")
        assert 'File "decoder.py"' in import_error["error"]
        binary = (await gateway.open(ME, session, "b.bin"))["handle"]
        with pytest.raises(Refused, match="none of these files is readable text"):
            await gateway.execute(ME, session, "1", [binary])
        kept = await gateway.execute(ME, session, "print(len(files))", [handle, binary])
        assert (kept["output"], kept["skipped_files"]) == ("1\n", 1)
    finally:
        await gateway.close()


async def test_output_is_bounded_and_counted(recipe: Recipe) -> None:
    gateway, session, _ = await opened(recipe)
    try:
        before = gateway.sessions.get(session, ME).bytes
        done = await gateway.execute(
            ME, session, "print('é' * 10**6); raise ValueError('x' * 10**5)"
        )
        size = len(done["output"].encode()) + len(done["error"].encode())
        assert (done["cut"], size <= 8_192, size > 8_000) == (True, True, True)
        assert gateway.sessions.get(session, ME).bytes == before + size
    finally:
        await gateway.close()


async def test_files_for_code_are_limited_in_number_and_size(recipe: Recipe) -> None:
    recipe.ceilings = {"run_files": 1, "run_bytes": 11}
    gateway, session, handle = await opened(recipe)
    try:
        await gateway.execute(ME, session, "1", [handle])
        (recipe.root / "a.txt").write_text("alpha\nbeta\n+")
        with pytest.raises(Refused, match="more than 11 bytes"):
            await gateway.execute(ME, session, "1", [handle])
        other = (await gateway.open(ME, session, "b.bin"))["handle"]
        with pytest.raises(Refused, match="at most 1 file "):
            await gateway.execute(ME, session, "1", [handle, other])
    finally:
        await gateway.close()


async def test_executed_code_is_recorded_without_its_text(recipe: Recipe) -> None:
    gateway, session, handle = await opened(recipe)
    try:
        await gateway.execute(ME, session, "print('very private')", [handle])
        entry = (await gateway.report(ME, session))["entries"][-1]
        assert (entry["tool"], entry["handles"]) == ("rlm_exec", [handle])
        assert len(entry["code"]) == len(entry["output"]) == 64
        assert "private" not in gateway.provenance.path.read_text()
    finally:
        await gateway.close()


async def test_cancelled_code_is_killed_and_nothing_is_left(recipe: Recipe) -> None:
    recipe.options = {"exec_seconds": 500.0}
    gateway, session, _ = await opened(recipe)
    try:
        await gateway.execute(ME, session, "x = 1")
        interpreter = gateway.executor._open[session].session
        endless = asyncio.create_task(gateway.execute(ME, session, "while True: pass"))
        while not gateway.executor._open[session].turn.locked():
            await asyncio.sleep(0.01)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        while session in gateway.executor._open:
            await asyncio.sleep(0.01)
        await interpreter.close()  # returns once its process is gone
        assert (await gateway.execute(ME, session, "print('x' in globals())"))[
            "output"
        ] == "False\n"
    finally:
        await gateway.close()


async def test_an_interpreter_ends_with_its_session(recipe: Recipe) -> None:
    now = 0.0
    gateway = recipe.gateway(clock=lambda: now)
    try:
        closed = gateway.create_session(ME)["session"]
        forgotten = gateway.create_session(ME)["session"]
        for session in (closed, forgotten):
            await gateway.execute(ME, session, "x = 1")
        gateway.close_session(ME, closed)
        assert list(await _open_after_a_while(gateway.executor, 1)) == [forgotten]
        now = 3_600.0
        gateway.sessions.end_old()
        assert await _open_after_a_while(gateway.executor, 0) == []
    finally:
        await gateway.close()


async def _open_after_a_while(executor: Executor, number: int) -> list[str]:
    while len(executor._open) > number:
        await asyncio.sleep(0.01)
    return list(executor._open)


async def test_closing_a_session_while_code_runs_leaves_no_interpreter(
    recipe: Recipe,
) -> None:
    gateway, session, _ = await opened(recipe)
    try:
        running = asyncio.create_task(gateway.execute(ME, session, "while True: pass"))
        await asyncio.sleep(0)
        gateway.close_session(ME, session)
        with pytest.raises(Refused, match="has ended"):
            await running
        assert await _open_after_a_while(gateway.executor, 0) == []
    finally:
        await gateway.close()


async def test_the_interpreter_idle_longest_is_closed_when_there_are_too_many() -> None:
    environment = PlanEnvironment()
    executor = Executor(environment=environment)
    for number in range(MAX_INTERPRETERS_EACH + 2):
        await executor.run(f"s{number}", "[]", None)
    assert len(executor._open) == MAX_INTERPRETERS_EACH
    assert "s0" not in executor._open
    assert "s1" not in executor._open
    await executor.close()
    assert all(session.closed for session in environment.sessions)


async def test_one_principal_cannot_keep_others_from_running_code() -> None:
    executor = Executor(environment=PlanEnvironment())
    try:
        endless = [
            asyncio.create_task(executor.run(f"s{number}", '[["sleep"]]', None, "ada"))
            for number in range(2 * MAX_AT_ONCE_EACH)
        ]
        done = await executor.run("other", '[["print", "hello"]]', None, "ben")
        assert done.output == "hello\n"
        assert len(executor._open) == MAX_AT_ONCE_EACH + 1
        for each in endless:
            each.cancel()
        await asyncio.gather(*endless, return_exceptions=True)
    finally:
        await executor.close()
