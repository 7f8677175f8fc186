"""Batches on two real nodes: a node is lost, an actor is killed, the driver is killed."""

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm import RLM
from rlm.batch import Batch, BatchFolder, Plan, Tally
from rlm.batch.rows import Source
from rlm.environments.ray import RayEnvironment
from rlm.limits import Budget
from rlm.testing.fake_server import Asked, FakeServer
from tests.cli.running import command, environment
from tests.processes import descendants
from tests.ray.conftest import add_node, left

Maker = Callable[..., RayEnvironment]
ROWS = 48
LINE = "a line of the one context that all rows share\n"


def write_rows(folder: Path, count: int) -> Path:
    (folder / "shared.txt").write_text(LINE * 5_000)
    rows = [{"query": f"row {n} ?", "context_file": "shared.txt"} for n in range(count)]
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / "tasks.jsonl"


def reply(asked: Asked) -> str:
    """Three steps, of which the second calls a model: look, ask, end."""
    if "row " not in asked.text:
        return asked.text.rpartition("say ")[2].strip()
    number = asked.text.partition("row ")[2].split()[0]
    if f"heard {number}" in asked.text:
        return f"```repl\nFINAL(f'{{len(context)}} {number}')\n```"
    if "looked" in asked.text:
        return f"```repl\nprint('heard', llm_query('say {number}'))\n```"
    return "```repl\nprint('look' + 'ed', context[:6])\n```"


def paid(server: FakeServer) -> Counter[str]:
    """How often each request was sent, by its text."""
    return Counter(each.asked.text for each in server.requests if each.asked)


async def run_batch(tasks: Path, server: FakeServer, place: RayEnvironment) -> Tally:
    folder = BatchFolder(tasks.with_name("answers.jsonl"))
    engine = RLM(
        "openai-compatible/m",
        variables={"LLM_BASE_URL": server.openai_url, "LLM_API_KEY": "k"},
        environment=place,
        journal=folder.journals.root,
    )
    try:
        with folder.opened() as table, folder.answers(table) as answers:
            plan, budget = Plan(concurrency=6), Budget.shared(max_tokens=10**9)
            return await Batch(
                engine, Source(tasks), table, answers, budget, plan, folder.journals
            ).run()
    finally:
        await engine.aclose()


def assert_whole(answers: Path, count: int) -> None:
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    assert [(line["row"], line["answer"]) for line in lines] == [
        (number, f"{5_000 * len(LINE)} {number}") for number in range(count)
    ]


async def test_a_batch_continues_when_one_of_two_nodes_is_lost(
    cluster: Any, made: Maker, tmp_path: Path
) -> None:
    second = add_node(cluster)
    tasks, place = write_rows(tmp_path, ROWS), made()
    started, nodes = time.monotonic(), set[str]()

    def log(words: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {words}")

    async def lose_a_node(server: FakeServer) -> None:
        while server.count < ROWS or len(place.contexts.writes) < 2:
            assert len(place.contexts.writes) == 2 or not batch.done(), "no row ran on one node"
            await asyncio.sleep(0.02)
        nodes.update(host.node for host in place.hosts)
        there = Counter(host.node[:8] for host in place.hosts)
        busy = sum(host.sessions for host in place.hosts)
        log(f"{server.count} requests so far, {busy} sessions, actors by node: {dict(there)}")
        await asyncio.to_thread(cluster.remove_node, second, allow_graceful=False)
        log(f"node {second.node_id[:8]} is removed")

    with FakeServer(rules=[("", reply)]) as server:
        log(f"{ROWS} rows, 2 nodes")
        batch = asyncio.create_task(run_batch(tasks, server, place))
        await lose_a_node(server)
        tally = await batch
        asked = paid(server)
    log(f"{tally.answered} answered, {tally.failed} failed, {asked.total()} requests")
    written = {node[:8]: times for node, times in place.contexts.writes.items()}
    log(f"the context was put into the store {place.contexts.puts} time, written by node {written}")
    assert (tally.answered, tally.failed) == (ROWS, 0)
    assert_whole(tmp_path / "answers.jsonl", ROWS)
    steps = {text: times for text, times in asked.items() if "row " in text}
    assert set(steps.values()) == {1}, "a step that was paid for is not paid again"
    repeated = asked.total() - len(asked)
    log(f"{repeated} requests were made twice")
    assert repeated <= 6, "no more than were on their way"
    assert place.contexts.puts == 1
    assert place.contexts.writes == dict.fromkeys(nodes, 1)


def batch_command(cluster: Any, tasks: Path, server: FakeServer) -> "subprocess.Popen[str]":
    words = ["batch", str(tasks), "--on", "ray", "--concurrency", "3"]
    words += ["--environment-option", f"address={cluster.address}"]
    variables = {"LLM_BASE_URL": server.openai_url, "LLM_API_KEY": "k"}
    return subprocess.Popen(
        command(*words),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment({**variables, "RLM_MODEL": "openai-compatible/m"}),
        text=True,
    )


async def test_a_killed_driver_leaves_nothing_and_the_same_command_continues(
    cluster: Any, tmp_path: Path
) -> None:
    rows, tasks = 8, write_rows(tmp_path, 8)
    raylets = [each.process.pid for each in cluster.head_node.all_processes["raylet"]]
    before = actors_below(raylets)
    with FakeServer(rules=[("", reply)]) as server:
        first = batch_command(cluster, tasks, server)
        while server.count < rows and first.poll() is None:
            await asyncio.sleep(0.05)
        actors = actors_below(raylets) - before
        started = set().union(actors, *(descendants(each) for each in actors))
        first.send_signal(signal.SIGKILL)
        first.communicate()
        assert len(started) > len(actors) > 0
        assert not await left(sorted(started))
        again = batch_command(cluster, tasks, server)
        out, err = await asyncio.to_thread(again.communicate)
        assert again.returncode == 0, err
        asked = paid(server)
    assert_whole(Path(out.strip()), rows)
    assert asked.total() - len(asked) <= 3  # at most this many were in flight


def actors_below(raylets: list[int]) -> set[int]:
    """The processes of our actors, which Ray names after their class."""
    found = set()
    for raylet in raylets:
        for pid in descendants(raylet):
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if title.startswith(b"ray::SessionHost"):
                found.add(pid)
    return found
