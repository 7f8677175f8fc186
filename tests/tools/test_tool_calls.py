"""Calling a tool: arguments in, results out, and how it may fail."""

import asyncio
import contextvars
import datetime
import decimal
import functools
import inspect
import itertools
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import RLMError, ToolError
from rlm.tools import FunctionTool, _function, _results
from rlm.worker import tagged
from tests.tools.tool_samples import Archive, City, Color, Filter, Point, Row, search


async def call(function: Callable[..., Any], /, *positional: Any, **named: Any) -> Any:
    """Call as the engine does: tagged JSON in, tagged JSON out."""
    arguments = {**named, "*": list(positional)} if positional else named
    sent = {name: tagged.loads(tagged.dumps(each)) for name, each in arguments.items()}
    return tagged.loads(tagged.dumps(await FunctionTool(function, name="tool").call(sent)))


async def failure(function: Callable[..., Any], /, *positional: Any, **named: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await call(function, *positional, **named)
    text = str(caught.value)
    assert "\n" not in text
    return text


# -- arguments ------------------------------------------------------------------------------------


async def test_arguments_are_passed_by_name_and_by_position() -> None:
    assert await call(search, q="a", limit=2) == ["a", "a"]
    assert await call(search, "a", 2) == await call(search, "a", limit=2) == ["a", "a"]
    assert await call(math.sqrt, x=4) == await call(math.sqrt, 4) == 2.0
    assert await call(Archive(2).look, "k") == await call(Archive(2), key="k") == "kk"
    assert await call(max, 1, 7, 3) == 7

    def gather(a: int, *rest: float, **more: datetime.date) -> Any:
        return [a, rest, {key: day.year for key, day in more.items()}]

    assert await call(gather, "1", 2, "3.5", x="2024-01-31") == [1, (2.0, 3.5), {"x": 2024}]


async def test_arguments_are_converted_by_their_annotations() -> None:
    def types(
        city: City,
        cities: list[City],
        point: Point,
        row: Row,
        color: Color,
        tags: set[str],
        only: Filter,
        price: decimal.Decimal,
        path: Path,
        flag: bool,
        maybe: City | None = None,
    ) -> list[str]:
        return [type(each).__name__ for each in (*locals().values(), cities[0], row.day)]

    assert await call(
        types,
        city={"name": "Ur"},
        cities=[{"name": "Ur"}],
        point={"x": "1"},
        row={"id": 1, "day": "2024-01-31"},
        color="red",
        tags=["a"],
        only={"word": "x"},
        price="1.50",
        path="a/b",
        flag="true",
        maybe={"name": "Ur"},
    ) == [
        "City", "list", "Point", "Row", "Color", "set", "dict", "Decimal", "PosixPath", "bool",
        "City", "City", "date",
    ]  # fmt: skip


async def test_values_of_types_json_lacks_are_passed_unchanged() -> None:
    def odd(a: Any, b: Archive, c: Callable[[], int] | None, d: Any, e: City | Archive) -> Any:
        return [a, b, c, d, e]

    odd.__annotations__.update(a="Missing", d="not even python")
    given_values = [{"x": 1}, [1], "c", 4, {"name": "Ur"}]
    assert await call(odd, *given_values) == given_values


async def test_text_stays_text_where_the_annotation_allows_it() -> None:
    def same(a: str | None, b: str | int, c: str) -> Any:
        return [a, b, c]

    assert await call(same, "null", "5", "true") == ["null", "5", "true"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing a required argument: 'q'"),
        ({"q": "a", "n": 1}, "unexpected keyword argument 'n'"),
        ({"*": ["a", 1, 2]}, "too many positional arguments"),
        ({"*": ["a"], "q": "b"}, "multiple values for argument 'q'"),
        ({"*": "a"}, "'*' must contain a list"),
        ({"q": "a", "limit": "many"}, "argument 'limit': Expected `int`, got `str`"),
        ({"q": ["a"]}, "argument 'q': Expected `str`, got `array`"),
        ({"q": "a", "limit": "\ud800"}, "argument 'limit'"),
    ],
)
async def test_errors_about_wrong_arguments_show_the_usage(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError) as caught:
        await FunctionTool(search).call(arguments)
    text = str(caught.value)
    assert text.startswith("search: ")
    assert words in text
    assert text.endswith("; usage: search(q: str, limit: int = 5) -> list[str]")


async def test_errors_about_wrong_models_are_brief() -> None:
    def put(city: City, others: list[City] | None = None) -> None: ...

    assert "argument 'city': people: Input should be a valid integer" in await failure(
        put, city={"name": "Ur", "people": "x"}
    )
    text = await failure(put, city={"name": "Ur"}, others=[{"people": 1}])
    assert "argument 'others': 0.name: Field required" in text
    assert "http" not in text


async def test_a_validator_may_raise_anything() -> None:
    class Strange(pydantic.BaseModel):
        a: int

        @pydantic.field_validator("a")
        @classmethod
        def check(cls, value: int) -> int:
            raise KeyError("what")

    def take(it: Strange) -> None: ...

    assert "argument 'it': KeyError: 'what'" in await failure(take, it={"a": 1})


async def test_a_single_dict_argument_is_distinguished_from_wrong_keywords() -> None:
    """The worker sends `save({"a": 1})` as `save(a=1)`."""

    def save(record: dict[str, Any]) -> dict[str, Any]:
        return record

    def build(city: City) -> str:
        return city.name

    untyped = lambda record: record  # noqa: E731

    for arguments in ({"record": {"a": 1}}, {"a": 1}, {"*": [{"a": 1}]}):
        assert await FunctionTool(save).call(arguments) == {"a": 1}
    assert await call(build, name="Ur") == await call(build, {"name": "Ur"}) == "Ur"
    assert "argument 'city': name: Field required" in await failure(build, nmae="Ur")
    assert "write record={...}" in await failure(save, recrod={"a": 1})
    assert "write record={...}" in await failure(untyped, a=1)
    assert "{...}" not in await failure(search, word="x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["q", "limit", "city", "rest", "*", "x y", ""])


def everything(
    q: str, limit: int | float = 5, city: City | None = None, *rest: Point, **more: set[int]
) -> Any:
    if limit == 0:
        raise ValueError(q)
    return [q, limit, city, rest, more]


@given(st.dictionaries(NAMES | st.text(), JSON, max_size=5))
async def test_any_arguments_raise_only_tool_errors(
    arguments: dict[str, Any],
) -> None:
    try:
        json.dumps(await FunctionTool(everything).call(arguments))
    except ToolError:
        return


@given(JSON)
async def test_json_values_are_returned_unchanged(value: Any) -> None:
    assert repr(await call(lambda it: it, it=value)) == repr(json.loads(json.dumps(value)))
    assert repr(await call(lambda it: it, value)) == repr(json.loads(json.dumps(value)))


# -- results --------------------------------------------------------------------------------------


class Scalar:
    """What numpy's scalars look like."""

    def tolist(self) -> float:
        return 1.5


class Name(str):
    """A str, but not quite."""

    __slots__ = ()


DAYS: Any = {datetime.date(2024, 1, 31)}
RESULTS: list[tuple[Any, Any]] = [
    (None, None),
    (10**40, 10**40),
    (Point(1), {"x": 1, "y": 0}),
    (Row(1, datetime.date(2024, 1, 31)), {"id": 1, "day": "2024-01-31"}),
    ([{"c": City(name="Ur")}], [{"c": {"name": "Ur", "people": 0}}]),
    (datetime.datetime(2024, 1, 31, 12), "2024-01-31T12:00:00"),
    ((1, {2}), (1, {2})),
    (b"\xff", b"\xff"),
    (memoryview(b"x"), b"x"),
    ([bytearray(b"x")], [bytearray(b"x")]),
    ({frozenset({1})}, {frozenset({1})}),
    ({1: {2}, "$set": [3]}, {1: {2}, "$set": [3]}),
    ({"$set": [3]}, {"$set": [3]}),
    (Row(1, DAYS), {"id": 1, "day": {"2024-01-31"}}),
    (object(), "<object object>"),
    (Archive(1), f"<{Archive.__module__}.Archive object>"),
    (decimal.Decimal("1.50"), "1.50"),
    (Color.RED, "red"),
    ([Scalar()], [1.5]),
    ([Name("n")], ["n"]),
    ([math.inf, -math.inf], [math.inf, -math.inf]),
    ("lone \ud800", "lone \ud800"),
    ({"lone \ud800": 1}, {"lone \ud800": 1}),
    ({(1, 2): {None: 1, 3: 4}}, {(1, 2): {None: 1, 3: 4}}),
    (range(3), [0, 1, 2]),
    ({"a": 1}.keys(), ["a"]),
    (map(str, [1, 2]), ["1", "2"]),
    (Path("a/b"), "a/b"),
    (1 + 2j, "(1+2j)"),
    (ValueError("x"), "x"),
    (int, "<class 'int'>"),
    (City, f"<class '{City.__module__}.City'>"),
]  # fmt: skip


@pytest.mark.parametrize(("result", "seen"), RESULTS, ids=lambda value: type(value).__name__)
async def test_results_are_converted_to_data(result: Any, seen: Any) -> None:
    assert await call(lambda: result) == seen


async def test_nan_survives() -> None:
    assert math.isnan(await call(lambda: math.nan))


async def test_results_that_cannot_be_serialized() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert await failure(lambda: cycle) == (
        "tool failed: the result refers to itself or is nested too deeply"
    )
    text = "x" * (16 << 20)
    assert await failure(lambda: text) == (
        "tool failed: the result is larger than 16 MiB as JSON; ask for less"
    )
    assert len(await call(lambda: text[:-2])) == (16 << 20) - 2


async def test_generators_and_awaitables_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted() -> Iterator[int]:
        yield from range(3)

    async def later() -> list[int]:
        await asyncio.sleep(0)
        return [0, 1, 2]

    async def streamed() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    class Later:
        async def __call__(self) -> list[int]:
            return await later()

    async def both() -> AsyncIterator[int]:
        return streamed()

    forms = (counted, later, streamed, Later(), both, functools.partial(later))
    for function in (*forms, lambda: later(), lambda: streamed()):
        assert await call(function) == [0, 1, 2]
    monkeypatch.setattr(_results, "MAX_ITEMS", 2)
    for function in (counted, streamed, itertools.count):
        assert await failure(function) == (
            "tool failed: the result has more than 2 items; ask for less"
        )


async def test_a_generator_is_consumed_in_the_thread_that_made_it() -> None:
    def threads() -> Iterator[bool]:
        mine = threading.get_ident()
        return iter([mine == threading.get_ident(), mine != threading.main_thread().ident])

    def lazily() -> Iterator[int]:
        yield threading.get_ident()
        yield threading.get_ident()

    assert await call(threads) == [True, True]
    assert len(set(await call(lazily))) == 1


# -- running --------------------------------------------------------------------------------------


async def test_a_blocking_function_does_not_block_the_loop() -> None:
    go_on = threading.Event()

    async def other() -> None:
        await asyncio.sleep(0.01)
        go_on.set()

    waiting = call(lambda: go_on.wait(10))
    assert (await asyncio.gather(waiting, other()))[0] is True


async def test_context_variables_reach_the_function() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def on_loop() -> str:
        return variable.get()

    variable.set("mine")
    assert await call(variable.get) == await call(on_loop) == "mine"


async def test_the_number_of_threads_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_function, "MAX_THREADS", 3)
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    tool = FunctionTool(work, timeout_seconds=1)
    await asyncio.gather(*(tool.call({}) for _ in range(12)))
    assert most == 3


async def test_failures_are_one_line_without_traceback() -> None:
    def fail(error: BaseException) -> Any:
        def raising() -> None:
            raise error

        async def raising_later() -> None:
            await asyncio.sleep(0)
            raise error

        return raising, raising_later

    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    for error, text in [
        (ValueError("bad\n  word"), "tool failed: ValueError: bad word"),
        (KeyError("k"), "tool failed: KeyError: 'k'"),
        (Silent(), "tool failed: Silent"),
        (SystemExit(2), "tool failed: SystemExit: 2"),
        (TimeoutError(), "tool failed: TimeoutError"),
        (ToolError("no such city"), "tool failed: no such city"),
        (RLMError("x"), "tool failed: RLMError: x"),
        (ExceptionGroup("two", [OSError()]), "tool failed: ExceptionGroup: two (1 sub-exception)"),
    ]:  # fmt: skip
        for function in fail(error):
            assert await failure(function) == text
    assert await failure(fail(StopIteration())[0]) == "tool failed: StopIteration"
    assert await failure(fail(KeyboardInterrupt())[0]) == "tool failed: KeyboardInterrupt"
    assert await failure(fail(asyncio.CancelledError())[1]) == "tool failed: it was cancelled"
    assert len(await failure(fail(ValueError("x" * 10_000))[0])) < 600


async def test_local_paths_are_removed_from_errors(tmp_path: Path) -> None:
    hidden = tmp_path / "secret" / "key.txt"
    text = await failure(lambda: hidden.read_text())
    assert (
        text == "tool failed: FileNotFoundError: [Errno 2] No such file or directory: '…/key.txt'"
    )
    assert str(hidden) in await failure(lambda path: Path(path).read_text(), path=str(hidden))

    def route() -> None:
        raise ValueError("GET /v1/users/5 of https://a.b/c/d gave 404, 1/2")

    assert "GET /v1/users/5 of https://a.b/c/d gave 404, 1/2" in await failure(route)


async def test_tools_time_out() -> None:
    release = threading.Event()
    for function in (lambda: release.wait(10), lambda: asyncio.sleep(10)):
        tool = FunctionTool(function, name="slow", timeout_seconds=0.02)
        with pytest.raises(ToolError, match=r"slow failed: no result within 0\.02 s"):
            await tool.call({})
    release.set()


@pytest.mark.filterwarnings("error")
async def test_a_coroutine_returned_too_late_is_closed() -> None:
    """The function returns after its time is up: what it returned is awaited by nobody."""
    begin, made = threading.Event(), list[Any]()

    def late() -> Any:
        begin.wait()
        made.append(asyncio.sleep(10))
        return made[0]

    with pytest.raises(ToolError, match="no result within"):
        await FunctionTool(late, timeout_seconds=0.01).call({})
    begin.set()
    async with asyncio.timeout(60):
        while not made or inspect.getcoroutinestate(made[0]) != inspect.CORO_CLOSED:
            await asyncio.sleep(0.001)


async def test_cancelling_is_not_a_tool_error() -> None:
    for function in (lambda: time.sleep(0.05), lambda: asyncio.sleep(10)):
        task = asyncio.create_task(call(function))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_hanging_tool_does_not_keep_python_alive() -> None:
    code = """
import asyncio, threading
from rlm.errors import ToolError
from rlm.tools import FunctionTool
try:
    asyncio.run(FunctionTool(threading.Event().wait, timeout_seconds=0.05).call({}))
except ToolError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "wait failed: no result within 0.05 s\n"


def test_one_tool_serves_several_loops() -> None:
    tool = FunctionTool(search)
    for _ in range(3):
        assert asyncio.run(tool.call({"q": "a", "limit": 1})) == ["a"]
