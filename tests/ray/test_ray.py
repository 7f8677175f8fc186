"""The ray environment on a real cluster: both suites, its contexts, its actors and their ends."""

import asyncio
import contextlib
import gc
import os
import re
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.context import store_context
from rlm.environments.ray import RayEnvironment
from rlm.environments.ray import pool as pools
from rlm.errors import ConfigError, SessionDied
from rlm.events import CellOutput, DataRead
from rlm.testing.attacks import attack
from rlm.testing.conformance import CHECKS, check
from tests.environments.conftest import FakeHost
from tests.processes import descendants
from tests.ray.conftest import left

Maker = Callable[..., RayEnvironment]
GROUPS = list(dict.fromkeys(each.group for each in CHECKS))
OPTIONS: dict[str, Any] = {"seed": 0, "tools": [], "cell_memory_bytes": 256 << 20}


@pytest.mark.parametrize("group", GROUPS)
async def test_it_conforms(made: Maker, group: str) -> None:
    report = await check(made(), only=f"{group}: ")
    assert report.rows
    assert not [f"{row.name}: {row.detail}" for row in report.bad]
    assert not [row.name for row in report.rows if row.verdict == "not offered"]


async def test_no_attack_succeeds(made: Maker) -> None:
    report = await attack(made())
    assert not [f"{row.name}: {row.detail}" for row in report.bad]
    assert report.counts["stopped"] > 150


async def test_data_stays_on_the_driver(made: Maker, tmp_path: Path) -> None:
    """A node may have neither the path nor the package: it asks the driver."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table orders (id integer)")
        connection.executemany("insert into orders values (?)", [(n,) for n in range(7)])
    connection.close()
    code = (
        "import os\nprint(os.path.exists("
        f"{str(path)!r}))\nFINAL(ctx.sql('select count(*) as n from orders')[0]['n'])"
    )
    engine = RLM(ScriptedClient([f"```repl\n{code}\n```"]), environment=made())
    result = await engine.aask("How many?", path)
    assert result.answer == "7"
    read = [event for event in result.events if isinstance(event, DataRead)]
    assert [(each.method, each.count, each.returned) for each in read] == [("sql", 1, 1)]
    assert [e.text for e in result.events if isinstance(e, CellOutput)] == ["False\n"]


async def test_a_context_is_written_once_per_node(made: Maker) -> None:
    environment, size = made(), 24 << 20
    context = store_context("a long line of text\n" * (size // 20))
    sessions = [await environment.open(FakeHost(), OPTIONS) for _ in range(3)]
    for session in sessions:
        await session.load("context", context)
        told = await session.execute("print(len(context), context.count('x'))", timeout_seconds=60)
        assert told.stdout == f"{size // 20 * 20} {size // 20}\n"
    assert environment.contexts.puts == 1
    assert list(environment.contexts.writes.values()) == [1]
    assert len({host.process for host in environment.hosts}) == 3
    workers = set().union(*(descendants(host.process) for host in environment.hosts))
    mapped = [memory_of_context(worker) for worker in workers]
    assert sum(shared > 20 << 20 for shared, _ in mapped) == 3
    assert sum(private for _, private in mapped) < 1 << 20


def memory_of_context(process: int) -> tuple[int, int]:
    """Bytes of contexts that a process has mapped: those that others have too, and those alone."""
    shared = private = 0
    is_context = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split()[0]:
            is_context = "rlm-context" in line
        elif is_context and name.startswith("Shared_"):
            shared += 1024 * int(rest.split()[0])
        elif is_context and name.startswith("Private_"):
            private += 1024 * int(rest.split()[0])
    return shared, private


async def test_a_garbage_collected_context_is_removed_from_the_nodes(made: Maker) -> None:
    environment = made()
    for number in range(3):
        session = await environment.open(FakeHost(), OPTIONS)
        await session.load("context", store_context(f"{number}" * (1 << 20)))
        await session.close()
        gc.collect()
    (host,) = environment.hosts
    assert files_of(host.process) == 1  # the last one, until the next session
    await (await environment.open(FakeHost(), OPTIONS)).close()
    assert files_of(host.process) == 0


def files_of(process: int) -> int:
    """How many files of contexts a process holds."""
    found = 0
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += "rlm-context" in str(link.readlink())
    return found


async def test_actors_are_reused_but_sessions_are_not(made: Maker) -> None:
    environment = made()
    pids = []
    for _ in range(3):
        session = await environment.open(FakeHost(), OPTIONS)
        told = await session.execute("print('mine' in globals()); mine = 1", timeout_seconds=60)
        pids.append(told.stdout)
        await session.close()
    assert pids == ["False\n"] * 3
    assert len(environment.hosts) == 1


async def test_a_full_cluster_shares_its_actors(
    made: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of a run must not wait for room that the run itself takes."""
    monkeypatch.setattr(pools, "PATIENCE_SECONDS", 1.0)
    model = ScriptedClient(
        rules=[
            ("part", "```repl\nFINAL(context)\n```"),
            ("", "```repl\nFINAL(rlm_query('part', context='the answer'))\n```"),
        ]
    )
    environment = made(num_cpus=1)
    with RLM(model, environment=environment, limits=Limits(max_depth=2)) as rlm:
        assert (await rlm.aask("what?", "x")).answer == "the answer"
        (host,) = environment.hosts
        assert host.sessions == 0


async def test_a_killed_actor_loses_its_sessions_and_the_run_continues(made: Maker) -> None:
    environment = made()
    killed: list[int] = []

    def reply(request: Any) -> str:
        if "SessionLost" in str(request.messages[-1].content) or killed_all:
            return "```repl\nFINAL(context + ' again')\n```"
        return "```repl\nprint(llm_query('now'))\nimport time\ntime.sleep(600)\n```"

    killed_all = False

    def now(request: Any) -> str:
        nonlocal killed_all
        for host in environment.hosts:
            killed.extend([host.process, *descendants(host.process)])
            os.kill(host.process, signal.SIGKILL)
        killed_all = True
        return "ok"

    model = ScriptedClient(rules=[(re.compile("^now$", re.MULTILINE), now), ("", reply)])
    with RLM(model, environment=environment) as rlm:
        result = await rlm.aask("what?", "it")
    assert result.answer == "it again"
    assert len(killed) > 2
    assert not await left(killed)


async def test_a_session_of_a_killed_actor_says_so(made: Maker) -> None:
    environment = made()
    session = await environment.open(FakeHost(), OPTIONS)
    cell = asyncio.ensure_future(session.execute("while True: pass", timeout_seconds=600))
    await asyncio.sleep(1)
    os.kill(environment.hosts[0].process, signal.SIGKILL)
    with pytest.raises(SessionDied, match="actor on Ray node"):
        await cell
    await session.close()
    assert environment.hosts == ()


async def test_an_error_on_a_node_is_reported_as_a_local_one(made: Maker) -> None:
    with pytest.raises(ConfigError, match="which does not exist"):
        await made(read_only_paths=["/nowhere"]).open(FakeHost(), OPTIONS)


async def test_files_written_by_cells_are_exported_to_the_driver(
    made: Maker, tmp_path: Any
) -> None:
    session = await made(export_to=tmp_path).open(FakeHost(), {**OPTIONS, "label": "one"})
    code = "import os\nopen(os.environ['HOME'] + '/note.txt', 'w').write('hello')"
    assert (await session.execute(code, timeout_seconds=60)).error is None
    await session.close()
    assert (tmp_path / "one" / "note.txt").read_text() == "hello"


async def test_impossible_demands_on_the_cluster_are_reported(made: Maker) -> None:
    environment = made(resources={"unobtainium": 1}, start_seconds=3)
    with pytest.raises(SessionDied, match="lower num_cpus, memory or resources"):
        await environment.open(FakeHost(), OPTIONS)
