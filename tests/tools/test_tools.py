"""Functions as tools: their names and lines in the prompt, and what callers may hand in."""

import asyncio
import functools
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest

from rlm.errors import ConfigError, ToolError
from rlm.protocols import Tool
from rlm.tools import FunctionTool, as_tools, describe_values
from rlm.worker.repl_names import REPL_NAMES
from tests.tools.tool_samples import Archive, City, Point, search


def shown(function: Callable[..., Any], name: str | None = None) -> str:
    return FunctionTool(function, name=name).description


def test_the_description_in_the_prompt() -> None:
    expected = "`search(q: str, limit: int = 5) -> list[str]`: Search the archive for a word."
    assert shown(search) == expected
    assert FunctionTool(search, description="Finds\n it.").description.endswith("`: Finds it.")
    assert shown(lambda q: q, "search_web") == "`search_web(q)`"


def test_signatures_are_readable() -> None:
    def odd(
        a: Any,
        *rest: int,
        city: Optional[City] = None,  # noqa: UP045
        mode: Literal["a.b", "c"] = "a.b",
        key: Annotated[str, "secret"] = "x" * 100,
        path: Path = Path("somewhere/secret"),
        late: int = 3,
        **more: dict[str, Point],
    ) -> None: ...

    del odd.__annotations__["a"]
    odd.__annotations__["late"] = "Missing"
    assert shown(odd) == (
        "`odd(a, *rest: int, city: Optional[City] = None, mode: Literal['a.b', 'c'] = 'a.b', "
        f"key: str = '{'x' * 38}…, path: Path = ..., late: Missing = 3, "
        "**more: dict[str, Point]) -> None`: "
        "(city: {'name': str, 'people'?: int} | None; more: dict[str, {'x': int, 'y'?: int}])"
    )


def test_every_kind_of_callable_has_a_name_and_a_signature() -> None:
    archive = Archive(2)
    assert shown(archive.look) == "`look(key: str) -> str`"
    assert shown(archive) == "`Archive(key: str) -> str`: An archive."
    assert shown(Archive) == "`Archive(size: int)`: An archive."
    assert shown(functools.partial(search, "x")) == (
        "`search(limit: int = 5) -> list[str]`: Search the archive for a word."
    )
    assert shown(math.sqrt) == "`sqrt(x)`: Return the square root of x."
    assert shown(max).startswith("`max(*args, **kwargs)`: ")
    assert shown(City) == "`City(*, name: str, people: int = 0)`"


def test_arguments_set_by_partial_are_hidden_and_cannot_be_changed() -> None:
    def fetch(key: str, url: str = "", token: str = "") -> str:
        return f"{key} {url} {token}"

    bound = functools.partial(functools.partial(fetch, token="s3cret"), url="u")
    tool = FunctionTool(bound)
    assert tool.description == "`fetch(key: str) -> str`"
    assert asyncio.run(tool.call({"key": "k"})) == "k u s3cret"
    with pytest.raises(ToolError, match="'token' is fixed for this tool"):
        asyncio.run(tool.call({"key": "k", "token": "mine"}))


@pytest.mark.parametrize("name", ["", "two words", "class", "_x", "FINAL", "context_7", "answer"])
def test_invalid_tool_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="can't be named") as caught:
        FunctionTool(search, name=name)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="can't be named"):
        as_tools({name: 5})


def test_names_of_the_repl_cannot_be_tool_names() -> None:
    for entry in REPL_NAMES:
        if entry.yields:  # Operators step aside for a tool of the same name.
            assert FunctionTool(search, name=entry.name).name == entry.name
            continue
        with pytest.raises(ConfigError, match="the REPL itself"):
            FunctionTool(search, name=entry.name)


def test_invalid_tools_are_refused() -> None:
    number: Any = 5
    with pytest.raises(ConfigError, match="lambda has no name"):
        FunctionTool(lambda: 1)
    with pytest.raises(ConfigError, match="callable, not int"):
        FunctionTool(number)
    for seconds in (0, -1, math.nan):
        with pytest.raises(ConfigError, match="timeout_seconds"):
            FunctionTool(search, timeout_seconds=seconds)


# -- what callers hand in -------------------------------------------------------------------------


class Upper:
    name = "upper"
    description = "`upper(text)`: makes text louder"

    async def call(self, arguments: dict[str, Any]) -> Any:
        return str(arguments["text"]).upper()


def test_tools_may_be_none_or_a_list() -> None:
    assert as_tools(None) == as_tools([]) == as_tools({}) == ((), {})
    upper = Upper()
    tools, values = as_tools((search, upper, Archive(2).look))
    assert [tool.name for tool in tools] == ["search", "upper", "look"]
    assert tools[1] is upper
    assert values == {}


async def test_dicts_in_every_form_of_the_reference_are_accepted() -> None:
    tools, values = as_tools(
        {
            "find": search,
            "shout": Upper(),
            "louder": {"tool": Upper(), "description": "Louder still."},
            "look": {"tool": lambda q: q, "description": "Looks q up."},
            "LIMIT": 5,
            "TABLE": {"tool": {"a": [1]}, "description": "What\nis known."},
            "HAMMER": {"tool": "hammer", "price": 3},
            "NOTHING": None,
        }
    )
    assert [tool.description for tool in tools] == [
        "`find(q: str, limit: int = 5) -> list[str]`: Search the archive for a word.",
        "`shout(text)`: makes text louder",
        "`louder(text)`: Louder still.",
        "`look(q)`: Looks q up.",
    ]
    assert values == {
        "LIMIT": 5,
        "TABLE": {"a": [1]},
        "HAMMER": {"tool": "hammer", "price": 3},
        "NOTHING": None,
    }
    assert await tools[2].call({"text": "a"}) == "A"


def test_values_are_described() -> None:
    given_tools = {"f": search, "LIMIT": 5, "T": {"tool": {}, "description": "What\nis known."}}
    assert describe_values(given_tools) == ("`LIMIT` (int)", "`T` (dict): What is known.")
    assert describe_values([search]) == ()


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("text", "must be a list of functions or a dict by name, not str"),
        (search, "must be a list of functions or a dict by name, not function"),
        ([search, 5], r"tools\[1\] is int, not a function"),
        ([search, search], "two tools are named 'search'"),
        ([lambda: 1], "a lambda has no name"),
        ({"x": [object()]}, "tool 'x' contains something that is not data: a object is not data"),
        ({"x": CYCLE}, "tool 'x' refers to itself"),
        ({"x": object()}, "tool 'x' is an object of the built-in type object: pass a function"),
        ({5: search}, "can't be named 5"),
        ({"budget": search}, "can't be named 'budget'"),
        ({"x": {"tool": search, "description": 5}}, "tool 'x': the description must be a str"),
    ],
)
def test_values_that_are_not_tools_are_refused(wrong: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        as_tools(wrong)
    assert "\n" not in str(caught.value)


def test_function_tools_satisfy_the_tool_protocol() -> None:
    tool: Tool = FunctionTool(search)
    assert repr(tool) == "FunctionTool(search(q: str, limit: int = 5) -> list[str])"


def test_importing_tools_loads_no_heavy_modules() -> None:
    imports = "import sys, rlm.tools, rlm.engine.answer_types"
    code = f"{imports}; print(*{{'pydantic', 'jsonschema'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
