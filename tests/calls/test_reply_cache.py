"""Replies on disk: found only by the whole request, free of charge, and never a reason to fail."""

import asyncio
import contextlib
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rlm.api import RLM
from rlm.calls.cache import ReplyCache, as_cache
from rlm.calls.cache.file import NAME, ROW_BYTES, CacheFile, CacheTrouble
from rlm.calls.calls import Calls, Route
from rlm.calls.scheduler import Scheduler
from rlm.calls.scope import Scope, Tree
from rlm.errors import ConfigError, ModelError
from rlm.events import CallEnded
from rlm.limits import Budget, Limits
from rlm.messages import Message, ModelInfo, Price, Reply, Request, ToolCall, ToolSpec, Usage
from rlm.prompts.observation import observation
from rlm.records.recorders.in_process import MemoryRecorder
from rlm.results import CellResult
from rlm.testing.scripted import ScriptedClient
from tests.fakes import PlanEnvironment, cell
from tests.stores import MemoryStore

COLD: dict[str, Any] = {"temperature": 0}
PRICE = Price(1.0, 2.0)


def request(prompt: str = "hello", sampling: dict[str, Any] = COLD, **more: Any) -> Request:
    messages = (Message("user", prompt),)
    return Request(model="m", messages=messages, max_output_tokens=100, sampling=sampling, **more)


class House:
    """Calls over a scripted client and a cache; every run is a scope of its own."""

    def __init__(
        self, cache: ReplyCache, script: list[Any], *, store: MemoryStore | None = None
    ) -> None:
        self.client = ScriptedClient(script, price=PRICE)
        route = Route(self.client, "wire", ModelInfo(price=PRICE), "a server")
        self.calls = Calls(lambda _: route, Scheduler(64), cache=cache)
        self.store = store
        self.recorder = MemoryRecorder()
        self.budget = Budget(Limits(max_tokens=100_000))

    def new_run(self) -> Scope:
        tree = Tree(16, self.store)
        return Scope(run_id="run", budget=self.budget, recorders=(self.recorder,), tree=tree)

    async def call(self, scope: Scope | None = None, **options: Any) -> str:
        return (await self.calls.counted_call(scope or self.new_run(), request(**options))).text

    def ended(self) -> list[CallEnded]:
        return [event for event in self.recorder.events if isinstance(event, CallEnded)]


@pytest.fixture
def cache(tmp_path: Path) -> ReplyCache:
    return ReplyCache(tmp_path / "cache")


# -- in the path of a call ------------------------------------------------------------------------


async def test_a_second_run_gets_the_cached_reply_free_and_marked_as_stored(
    cache: ReplyCache,
) -> None:
    house = House(cache, ["a", "b"])
    assert [await house.call(), await house.call()] == ["a", "a"]
    first, second = house.ended()
    assert (first.stored, second.stored) == (False, True)
    assert first.usage is not None
    assert second.usage == Usage(cost_usd=0.0)
    assert (second.usage.requests, second.usage.total_tokens) == (0, 0)
    assert house.budget.used.tokens == first.usage.total_tokens
    assert house.budget.in_flight == house.budget.reserved.tokens == 0
    await cache.close()


async def test_a_cached_reply_is_there_for_the_next_process(cache: ReplyCache) -> None:
    await House(cache, ["a"]).call()
    await cache.close()
    again = ReplyCache(cache.folder)
    assert await House(again, []).call() == "a"
    await again.close()


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.1}, {"temperature": 1}, {"temperature": False}]
)
async def test_only_requests_at_temperature_0_are_cached_unless_always_is_set(
    cache: ReplyCache, sampling: dict[str, Any]
) -> None:
    house = House(cache, ["a", "b"])
    assert [await house.call(sampling=sampling) for _ in range(2)] == ["a", "b"]
    always = ReplyCache(cache.folder, always=True)
    house = House(always, ["c", "d"])
    assert [await house.call(sampling=sampling) for _ in range(2)] == ["c", "c"]
    await cache.close()
    await always.close()


async def test_calls_only_limits_the_cache_to_calls_from_cells(cache: ReplyCache) -> None:
    calls_only = ReplyCache(cache.folder, calls_only=True)
    house = House(calls_only, ["a", "b", "c"])
    for expected in ("a", "b"):
        reply = await house.calls.run_request(house.new_run(), request(), purpose="step")
        assert reply.text == expected
    assert [await house.call(), await house.call()] == ["c", "c"]
    await calls_only.close()


async def test_equal_items_of_a_batch_stay_separate_samples_in_the_cache(cache: ReplyCache) -> None:
    house = House(cache, ["a", "b", "c", "never"])
    run = house.new_run()
    first = await asyncio.gather(*(house.call(run) for _ in range(3)))
    run = house.new_run()
    second = await asyncio.gather(*(house.call(run) for _ in range(3)))
    assert first == second == ["a", "b", "c"]
    assert len(house.client.requests) == 3
    await cache.close()


async def test_equal_requests_of_concurrent_runs_are_sent_once(cache: ReplyCache) -> None:
    house = House(cache, ["a", "never"])
    house.client.delay_seconds = 0.01
    assert await asyncio.gather(*(house.call() for _ in range(20))) == ["a"] * 20
    assert len(house.client.requests) == 1
    assert [event.stored for event in house.ended()].count(True) == 19
    assert house.budget.in_flight == house.budget.reserved.tokens == 0
    await cache.close()


async def test_if_the_request_that_others_wait_for_fails_another_takes_over(
    cache: ReplyCache,
) -> None:
    house = House(cache, [ModelError("no"), "b", "never"])
    house.client.delay_seconds = 0.01
    replies = await asyncio.gather(*(house.call() for _ in range(5)), return_exceptions=True)
    assert [str(reply) for reply in replies].count("b") == 4
    assert isinstance(replies[0], ModelError)
    await cache.close()


async def test_if_the_request_that_others_wait_for_is_cancelled_another_takes_over(
    cache: ReplyCache,
) -> None:
    house = House(cache, ["a", "b", "never"])
    house.client.delay_seconds = 0.05
    tasks = [asyncio.create_task(house.call()) for _ in range(3)]
    while not house.client.in_flight:
        await asyncio.sleep(0)
    while len(house.calls._in_progress) == 0:
        await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in results[1:]] == ["b", "b"]
    assert house.budget.in_flight == house.budget.reserved.tokens == 0
    await cache.close()


async def test_the_journal_is_asked_before_the_cache_and_records_cached_replies(
    cache: ReplyCache,
) -> None:
    await House(cache, ["cached"]).call()
    store = MemoryStore()
    house = House(cache, [], store=store)
    assert await house.call() == "cached"
    (journaled,) = store.replies.values()
    assert (journaled.text, journaled.usage) == ("cached", Usage(cost_usd=0.0))
    store.replies = {key: replace(journaled, text="journaled") for key in store.replies}
    assert await house.call() == "journaled"
    # When resumed, a reply that was free the first time is free again.
    assert house.budget.used.tokens == 0
    assert [event.usage for event in house.ended()] == [Usage(cost_usd=0.0)] * 2
    await cache.close()


async def test_empty_and_refused_replies_are_not_cached(cache: ReplyCache) -> None:
    script = [Reply(text=""), Reply(text="x", finish_reason="refusal"), "good", "never"]
    house = House(cache, script)
    assert [await house.call() for _ in range(4)] == ["", "x", "good", "good"]
    await cache.close()


async def test_replies_of_a_client_without_an_identity_are_not_cached(cache: ReplyCache) -> None:
    house = House(cache, ["a", "b"])
    nameless = Route(house.client, "wire", ModelInfo())
    house.calls.router = lambda _: nameless
    assert [await house.call(), await house.call()] == ["a", "b"]


# -- the key of a reply ---------------------------------------------------------------------------


def test_everything_that_decides_a_reply_is_in_the_key(cache: ReplyCache) -> None:
    plain = request()
    tool = ToolSpec("t", "does", {})
    others = [
        replace(plain, model="other"),
        replace(plain, max_output_tokens=101),
        replace(plain, sampling={"temperature": 0, "seed": 1}),
        replace(plain, tools=(tool,)),
        replace(plain, messages=(Message("system", "hello"),)),
        replace(plain, messages=(Message("user", "hello!"),)),
        replace(plain, messages=(Message("user", "hello", opaque={"a": 1}),)),
        replace(plain, messages=(*plain.messages, *plain.messages)),
    ]
    keys = {cache.key("a server", each, 0) for each in (plain, *others)}
    keys |= {cache.key("another server", plain, 0), cache.key("a server", plain, 1)}
    assert None not in keys
    assert len(keys) == len(others) + 3


def test_the_order_of_options_is_not_in_the_key(cache: ReplyCache) -> None:
    keys = {
        cache.key("s", request(sampling=sampling), 0)
        for sampling in ({"temperature": 0, "top_p": 1}, {"top_p": 1, "temperature": 0})
    }
    assert len(keys) == 1


def test_a_request_that_cannot_be_serialized_has_no_cache_key(cache: ReplyCache) -> None:
    assert cache.key("s", request(sampling={"temperature": 0, "hook": object()}), 0) is None


# -- the file -------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Any:
    opened = CacheFile.open(tmp_path, 10_000)
    yield opened
    opened.close()


def test_a_cached_reply_comes_back_unchanged(file: CacheFile) -> None:
    reply = Reply(
        text="wörter 😀",
        tool_calls=(ToolCall("1", "t", {"a": [1, None]}),),
        reasoning="because",
        usage=Usage(1, 2, cached_tokens=1, cost_usd=0.5),
        finish_reason="tool_calls",
        model="m-1",
        opaque={"blocks": [{"signature": "x"}]},
    )
    file.put(b"k", reply)
    assert file.get(b"k") == reply
    assert file.get(b"other") is None


def test_only_the_owner_can_read_the_cache(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache"
    (tmp_path / "deep").mkdir()
    opened = CacheFile.open(folder, 10_000)
    opened.put(b"k", Reply(text="a"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert files
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    opened.close()
    (folder / NAME).chmod(0o644)
    CacheFile.open(folder, 10_000).close()
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600


def test_the_least_recently_used_replies_are_evicted_first(file: CacheFile) -> None:
    for number in range(8):
        file.put(b"%d" % number, Reply(text="x" * 1_000))
    assert file.get(b"0") is not None  # used again, so it stays
    for number in range(8, 12):
        file.put(b"%d" % number, Reply(text="x" * 1_000))
    assert file.size_bytes() <= 10_000
    kept = [number for number in range(12) if file.get(b"%d" % number) is not None]
    assert kept == [0, *range(12 - len(kept) + 1, 12)]


def test_replaced_replies_are_counted_once_and_oversized_ones_are_not_stored(
    file: CacheFile,
) -> None:
    for _ in range(5):
        file.put(b"k", Reply(text="x" * 500))
    assert 500 < file.size_bytes() < 500 + 2 * ROW_BYTES
    file.put(b"giant", Reply(text="x" * 20_000))
    assert file.get(b"giant") is None
    assert file.get(b"k") is not None


@pytest.mark.parametrize(
    "damage",
    [
        "update replies set reply = zeroblob(10)",
        "update replies set checksum = zeroblob(16)",
        "update replies set reply = 'text'",
        "update replies set key = cast('other' as blob)",
    ],
)
def test_a_damaged_entry_is_a_miss_and_is_replaced(
    file: CacheFile, tmp_path: Path, damage: str
) -> None:
    file.put(b"k", Reply(text="a"))
    with contextlib.closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as other:
        other.execute(damage)
    assert file.get(b"k") is None
    assert file.get(b"other") is None
    file.put(b"k", Reply(text="b"))
    assert file.get(b"k") == Reply(text="b")


async def test_a_damaged_file_is_set_aside(cache: ReplyCache) -> None:
    cache.prepare()
    (cache.folder / NAME).write_bytes(b"this is no database, " * 100)
    house = House(cache, ["a", "never"])
    assert [await house.call(), await house.call()] == ["a", "a"]
    assert (cache.folder / f"{NAME}.damaged").exists()
    await cache.close()


async def test_a_file_damaged_while_in_use_loses_only_its_entries(
    cache: ReplyCache, caplog: pytest.LogCaptureFixture
) -> None:
    house = House(cache, ["a", "b", "never"])
    assert await house.call() == "a"
    await cache.close()
    path = cache.folder / NAME
    data = bytearray(path.read_bytes())
    data[4_096:] = b"\xff" * (len(data) - 4_096)
    path.write_bytes(data)
    assert [await house.call() for _ in range(3)] == ["b", "b", "b"]
    await cache.close()


async def test_an_unusable_cache_folder_fails_no_call(
    cache: ReplyCache, caplog: pytest.LogCaptureFixture
) -> None:
    cache.folder.parent.mkdir(exist_ok=True)
    cache.folder.write_text("a file where the folder should be")
    house = House(cache, ["a", "b"])
    assert [await house.call(), await house.call()] == ["a", "b"]
    assert caplog.text.count("is currently unusable") == 1
    await cache.close()


def test_a_cache_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CacheFile.open(tmp_path, 10_000).close()
    monkeypatch.setattr("os.geteuid", lambda: 4_242)
    with pytest.raises(CacheTrouble, match="belongs to another user"):
        CacheFile.open(tmp_path, 10_000)


WRITER = """
import sys
from pathlib import Path
from rlm.calls.cache.file import CacheFile
from rlm.messages import Reply
file = CacheFile.open(Path(sys.argv[1]), 1_000_000)
for number in range(150):
    file.put(b"%d" % number, Reply(text="x" * number))
    assert file.get(b"%d" % number) == Reply(text="x" * number)
file.close()
"""


def test_many_processes_may_write_at_once(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)]) for _ in range(4)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0, 0]
    file = CacheFile.open(tmp_path, 1_000_000)
    assert all(file.get(b"%d" % number) is not None for number in range(150))
    file.close()


# -- RLM(cache=...) -------------------------------------------------------------------------------


def test_values_accepted_for_the_cache_option(tmp_path: Path) -> None:
    variables = {"XDG_CACHE_HOME": str(tmp_path)}
    assert as_cache(None, variables) is as_cache(False, variables) is None
    usual, named = as_cache(True, variables), as_cache(str(tmp_path / "named"), variables)
    assert usual is not None
    assert named is not None
    assert (usual.folder, named.folder) == (tmp_path / "rlm", tmp_path / "named")
    assert stat.S_IMODE(usual.folder.stat().st_mode) == 0o700
    own = ReplyCache(tmp_path, always=True)
    assert as_cache(own, variables) is own
    wrong: Any = 3
    with pytest.raises(ConfigError, match="True, a folder or a ReplyCache, not 3"):
        as_cache(wrong, variables)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't be created"):
        as_cache(tmp_path / "file" / "below", variables)
    sizes: list[Any] = [0, -1, True, 1.5]
    for size in sizes:
        with pytest.raises(ConfigError, match="max_bytes"):
            ReplyCache(tmp_path, max_bytes=size)


async def test_a_run_is_answered_from_replies_cached_by_another_run(tmp_path: Path) -> None:
    results, asked = [], []
    for _ in range(2):
        client = ScriptedClient([cell(["batch", 3]), "x", "y", "z", cell(["final", "done"])])
        vars(client)["identity"] = "a script"
        engine = RLM(
            client,
            environment=PlanEnvironment(),
            cache=ReplyCache(tmp_path, always=True),
            prices={"ScriptedClient": (1.0, 2.0)},
        )
        results.append(await engine.aask("What?", "some context"))
        asked.append(len(client.requests))
        await engine.aclose()
    assert asked == [5, 0]
    assert [result.answer for result in results] == ["done", "done"]
    assert (results[1].cost_usd, results[1].usage.total.requests) == (0.0, 0)


@pytest.mark.parametrize("kind", ["user", "tool"])
def test_the_duration_of_cells_is_not_in_the_cache_key(cache: ReplyCache, kind: Any) -> None:
    """Otherwise, whether a reply is found would depend on how busy the machine is."""

    def key(*results: CellResult, steps_left: int = 3) -> bytes | None:
        text = observation(results, output_chars=100, steps_left=steps_left)
        asked = replace(request(), messages=(Message("system", "s"), Message(kind, text)))
        return cache.key("a server", asked, 0)

    quick = CellResult(stdout="1.5 s\n", stdout_chars=6, calls=2, seconds=0.01)
    slow = replace(quick, seconds=61.26)
    assert key(quick) == key(slow) == key(quick, steps_left=3)
    assert key(quick, slow) == key(slow, quick)
    others = {
        key(replace(quick, stdout="1.6 s\n")),
        key(replace(quick, stdout_chars=7)),
        key(replace(quick, calls=3)),
        key(quick, steps_left=2),
        key(quick, quick),
    }
    assert len(others | {key(quick)}) == 6


def test_a_client_without_an_identity_is_refused_when_the_rlm_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an attribute `identity`"):
        RLM(ScriptedClient([]), cache=tmp_path)


def test_models_of_one_server_share_an_identity_that_does_not_depend_on_the_key() -> None:
    def identity(model: str, **options: Any) -> str | None:
        variables = {"OPENAI_API_KEY": "secret-secret", "LLM_BASE_URL": "http://localhost:1/v1"}
        variables |= options.pop("variables", {})
        one = RLM(model, variables=variables, client_options={model: options})
        return one.runner.resources.routes[model].identity

    usual = identity("openai/gpt-5-mini")
    assert usual
    assert "secret" not in usual
    assert identity("openai/gpt-5") == usual
    assert identity("openai/gpt-5", api_key="another-secret") == usual
    others = {
        identity("openai/gpt-5", base_url="http://localhost:1/v1"),
        identity("openai/gpt-5", variables={"OPENAI_BASE_URL": "http://localhost:2/v1"}),
        identity("openai/gpt-5", headers={"x-route": "b"}),
        identity("openai-compatible/gpt-5"),
    }
    assert len(others | {usual}) == 5
