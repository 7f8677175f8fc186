"""Objects as tools in the hands of hostile cells: nothing more is reached, and nothing hangs."""

import asyncio
import dataclasses
import io
import os
import pickle
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Annotated, Any

import attrs
import msgspec
import pytest
from pydantic import AfterValidator, BaseModel

from rlm import RLM, ScriptedClient
from rlm.errors import ConfigError, ToolError
from rlm.tools import FunctionTool, ObjectTool, _function, _results, _threads, as_tools
from rlm.worker import tagged


class Unpickled:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.path,))


class Settings(BaseModel):
    """A model with one method of its own, and pydantic's, which can unpickle and read files."""

    api_key: str = "sk-hidden"

    def search(self, word: str) -> str:
        return word


class Buffer(io.StringIO):
    def first(self) -> str:
        return self.getvalue()[:1]


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


async def called(tool: Any, member: str = "", **arguments: Any) -> Any:
    tools = {each.name: each for each in as_tools({"it": tool})[0]}
    return await tools[f"it.{member}" if member else "it"].call(arguments)


# -- which members ----------------------------------------------------------------------------


@pytest.mark.parametrize("tool", [Settings(), Buffer("abc")])
def test_methods_added_by_a_library_are_not_tools(tool: Any) -> None:
    own = "search" if isinstance(tool, Settings) else "first"
    assert [each.name for each in as_tools({"it": tool})[0]] == ["it", f"it.{own}"]


async def test_a_cell_cannot_unpickle_on_the_host(tmp_path: Any) -> None:
    path = tmp_path / "made"
    data = pickle.dumps(Unpickled(str(path)))
    text = f"""
for name in ('parse_raw', 'parse_file', 'model_dump', 'model_construct'):
    try: print(call_tool('settings.' + name, {data!r}, proto='pickle', allow_pickle=True))
    except ToolFailed as error: print(error)
    try: getattr(settings, name)
    except AttributeError as error: print(error)
FINAL(settings.search('x'))
"""
    one = RLM(ScriptedClient([code(text)]), tools={"settings": Settings()})
    assert (await one.aask("q", "c")).answer == "x"
    await one.aclose()
    assert not path.exists()


def test_methods_added_by_a_library_can_be_exposed_by_name() -> None:
    given = {"tool": Settings(), "expose": ["search", "model_dump"]}
    names = [each.name for each in as_tools({"it": given})[0]]
    assert names == ["it", "it.search", "it.model_dump"]
    with pytest.raises(ConfigError, match=r'"expose": \["model_construct"'):
        as_tools({"it": type("Empty", (BaseModel,), {"__module__": __name__})()})


def test_properties_are_never_executed() -> None:
    ran: list[str] = []

    class Half:
        @property
        def size(self) -> int:
            ran.append("size")
            return 1

        def method(self) -> int:
            return 1

    both: Any = property(lambda cls: ran.append("both"))
    setattr(Half, "both", classmethod(both))  # noqa: B010
    assert [each.name for each in as_tools({"it": Half()})[0]] == ["it", "it.method"]
    assert ran == []


# -- results ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Database:
    url: str = "postgres://user:password@host"
    _token: str = "sk-hidden"

    def where(self) -> "Database":
        return self

    def nested(self) -> Any:
        return {"rows": [(self,)], "other": Database("public")}

    @property
    def me(self) -> Any:
        return "text"

    def __call__(self) -> "Database":
        return self

    def __str__(self) -> str:
        return self.url


@attrs.define
class Attrs:
    url: str = "postgres://user:password@host"
    _token: str = "sk-hidden"

    def where(self) -> "Attrs":
        return self


class Struct(msgspec.Struct, tag="struct", rename="camel"):
    the_url: str = "postgres://user:password@host"
    _token: str = "sk-hidden"

    def where(self) -> "Struct":
        return self


@pytest.mark.parametrize("tool", [Database(), Attrs(), Struct()])
async def test_an_object_that_returns_itself_does_not_show_its_fields(tool: Any) -> None:
    shown = f"<{__name__}.{type(tool).__name__} object>"
    assert await called(tool, "where") == shown
    if isinstance(tool, Database):
        assert await called(tool) == shown
        found = await called(tool, "nested")
        assert found == {"rows": [(shown,)], "other": {"url": "public"}}


async def test_private_fields_are_not_part_of_results() -> None:
    assert await FunctionTool(lambda: [Database(), Attrs()], name="f").call({}) == [
        {"url": "postgres://user:password@host"},
        {"url": "postgres://user:password@host"},
    ]
    assert await FunctionTool(lambda: Struct(), name="f").call({}) == {
        "type": "struct",
        "theUrl": "postgres://user:password@host",
    }


class Endless(Mapping[int, int]):
    def __getitem__(self, key: int) -> int:
        return key

    def __iter__(self) -> Iterator[int]:
        while True:
            yield id(object())

    def __len__(self) -> int:
        return 1


class Array:
    size = 10**12

    def tolist(self) -> Any:
        raise AssertionError("it must not be made")


def doubled(times: int) -> Any:
    value: Any = ["x"]
    for _ in range(times):
        value = [value, value]
    return value


def mutual() -> Any:
    first: list[Any] = []
    second = msgspec.defstruct("Second", [("first", Any)])(first)
    first.append(second)
    return first


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda: doubled(64), "larger than"),
        (lambda: {"a": (doubled(64),)}, "larger than"),
        (lambda: Database(doubled(64)), "larger than"),
        (lambda: Struct(doubled(64)), "larger than"),
        (lambda: "x" * 10_000, "larger than"),
        (lambda: [b"x" * 10_000], "larger than"),
        (Endless, "more than 20 items"),
        (Array, "more than 20 items"),
        (mutual, "refers to itself"),
    ],
)
async def test_results_that_grow_forever_are_refused_while_they_grow(
    monkeypatch: pytest.MonkeyPatch, result: Any, words: str
) -> None:
    monkeypatch.setattr(_results, "MAX_RESULT_BYTES", 2_000 if words == "larger than" else 1 << 20)
    monkeypatch.setattr(_results, "MAX_ITEMS", 20)
    dumped: list[Any] = []
    monkeypatch.setattr(tagged, "dumps", dumped.append)
    with pytest.raises(ToolError, match=words):
        await FunctionTool(result, name="f", timeout_seconds=20).call({})
    assert dumped == []


# -- errors -----------------------------------------------------------------------------------


class Waits(Exception):
    """Becomes text only when it may."""

    may = threading.Event()

    def __str__(self) -> str:
        self.may.wait(60)
        return "late"


class NotPydantic(Exception):
    def errors(self) -> int:
        return 5


async def no_return() -> None:
    raise GeneratorExit


def long_name(path: str) -> None:
    raise FileNotFoundError(f"no such file: {path}")


def refuse(value: Any) -> Any:
    raise NotPydantic("refused")


def validated(value: Annotated[int, AfterValidator(refuse)]) -> int:
    return value


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (long_name, {"path": "/" + "a" * 300 + "/x/y"}, "failed: FileNotFoundError: no such"),
        (long_name, {"path": "/a\0b/x/y"}, "failed: FileNotFoundError: no such"),
        (no_return, {}, "failed: GeneratorExit"),
        (validated, {"value": 1}, "argument 'value': NotPydantic: refused; usage"),
    ],
)
async def test_every_failure_is_a_tool_error(function: Any, arguments: Any, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        await FunctionTool(function).call(arguments)


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_error_whose_message_hangs_does_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr(_function, "MAX_TELLING_SECONDS", 0.1)
    monkeypatch.setattr(Waits, "may", threading.Event())

    def fail() -> None:
        raise Waits

    async def fail_later() -> None:
        raise Waits

    with pytest.raises(ToolError, match=r"failed: Waits$"):
        await FunctionTool(fail_later if is_async else fail).call({})
    Waits.may.set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_slow_validator_is_limited_by_the_tools_timeout(is_async: bool) -> None:
    may = threading.Event()
    slow = Annotated[int, AfterValidator(lambda value: may.wait(60))]

    def take(value: Any) -> int:
        return 1

    async def take_later(value: Any) -> int:
        return 1

    function = take_later if is_async else take
    function.__annotations__["value"] = slow
    with pytest.raises(ToolError, match=r"no result within 0\.1 s"):
        await FunctionTool(function, timeout_seconds=0.1).call({"value": 1})
    may.set()


async def test_calls_are_refused_while_too_many_earlier_ones_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_threads, "MAX_LATE", 3)
    monkeypatch.setattr(_threads, "_late", set())
    may = threading.Event()
    tool = FunctionTool(lambda: may.wait(60), name="hang", timeout_seconds=0.05)
    for _ in range(3):
        with pytest.raises(ToolError, match=r"no result within 0\.05 s"):
            await tool.call({})
    before = threading.active_count()
    with pytest.raises(ToolError, match="3 earlier tool calls are still running"):
        await tool.call({})
    assert threading.active_count() == before
    may.set()
    while any(thread.is_alive() for thread in _threads._late):
        await asyncio.sleep(0.01)
    assert await tool.call({}) is True


def test_an_object_of_python_itself_needs_expose() -> None:
    for tool in (subprocess.Popen, SimpleNamespace(x=time), threading.Lock()):
        with pytest.raises(ConfigError):
            as_tools({"it": tool})
    assert [each.name for each in ObjectTool(os, name="it", expose=["getpid"]).tools] == [
        "it",
        "it.getpid",
    ]
