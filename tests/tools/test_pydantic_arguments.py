"""Arguments typed with pydantic: constraints hold, descriptions and shapes reach the prompt."""

import datetime
import enum
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, Optional, Required, TypedDict

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, Field

from rlm import RLM, ScriptedClient
from rlm.errors import ToolError
from rlm.tools import FunctionTool


class Port(BaseModel):
    name: str = Field(min_length=2, description="of the port")
    depth: Annotated[float, Field(gt=0)] = 5.0


class Trip(BaseModel):
    stops: list[Port]
    captain: Port | None = None


class Wish(TypedDict, total=False):
    word: str
    count: Required[int]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mark(msgspec.Struct):
    x: int
    port: Port | None = None


Berth = Annotated[int, Field(ge=1, le=40, description="counted from the north.")]


def berth(number: Berth) -> int:
    """Look at a berth."""
    return number


def route(trip: Trip) -> list[str]:
    return [type(stop).__name__ for stop in trip.stops]


def several(few: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=2)]) -> Any:
    return few


def one_of(what: Literal["a", "b"], color: Color = Color.RED, wish: Wish | None = None) -> Any:
    return [what, color, wish]


def either(port: Port | int, ports: dict[str, Port] | None = None) -> Any:
    return [type(port).__name__, None if ports is None else type(ports["a"]).__name__]


def old_style(count: int = Field(3, ge=2, description="how many")) -> int:
    return count


def needed(count: int = Field(ge=2)) -> int:
    return count


def late(
    a: "Annotated[int, Field(ge=3, description='three or more')]" = 4,
    b: Optional[Annotated[str, Field(pattern=r"^\d+$")]] = None,  # noqa: UP045
) -> Any:
    return [a, b]


def special(url: pydantic.HttpUrl, key: pydantic.SecretStr, day: datetime.date) -> Any:
    return [type(url).__name__, type(key).__name__, day.year]


def counted(*numbers: Berth, **more: Port) -> Any:
    return [numbers, {name: type(port).__name__ for name, port in more.items()}]


def mixed(mark: Mark) -> Any:
    return [type(mark).__name__, type(mark.port).__name__]


def plain(n: Annotated[int, msgspec.Meta(ge=3, description="three or more")]) -> int:
    return n


async def call(function: Callable[..., Any], **arguments: Any) -> Any:
    sent = json.loads(json.dumps(arguments))
    return json.loads(json.dumps(await FunctionTool(function).call(sent)))


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        (berth, {"number": 7}, 7),
        (berth, {"number": "7"}, 7),
        (route, {"trip": {"stops": [{"name": "Ur"}, {"name": "Uruk"}]}}, ["Port", "Port"]),
        (several, {"few": [1, "2"]}, [1, 2]),
        (one_of, {"what": "a"}, ["a", "red", None]),
        (
            one_of,
            {"what": "b", "color": "blue", "wish": {"count": 3}},
            ["b", "blue", {"count": 3}],
        ),
        (either, {"port": {"name": "Ur"}, "ports": {"a": {"name": "Ur"}}}, ["Port", "Port"]),
        (either, {"port": 5}, ["int", None]),
        (old_style, {}, 3),
        (old_style, {"count": 5}, 5),
        (late, {}, [4, None]),
        (late, {"a": 3, "b": "12"}, [3, "12"]),
        (
            special,
            {"url": "https://host/x", "key": "k", "day": "2024-05-06"},
            ["HttpUrl", "SecretStr", 2024],
        ),
        (counted, {"*": [1, 2], "home": {"name": "Ur"}}, [[1, 2], {"home": "Port"}]),
        (mixed, {"mark": {"x": 1, "port": {"name": "Ur"}}}, ["Mark", "Port"]),
        (plain, {"n": 3}, 3),
    ],
)
async def test_values_are_converted_by_their_annotations(
    function: Callable[..., Any], arguments: dict[str, Any], result: Any
) -> None:
    assert await call(function, **arguments) == result


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (berth, {"number": 41}, "argument 'number': Input should be less than or equal to 40"),
        (berth, {"number": None}, "argument 'number': Input should be a valid integer"),
        (route, {"trip": {"stops": [{"name": "U"}]}}, "'trip': stops.0.name: String should have"),
        (route, {"trip": {"stops": 3}}, "argument 'trip': stops: Input should be a valid list"),
        (several, {"few": [1, 2, 3]}, "argument 'few': List should have at most 2 items"),
        (several, {"few": [-1]}, "argument 'few': 0: Input should be greater than or equal to 0"),
        (one_of, {"what": "c"}, "argument 'what': Invalid enum value 'c'"),
        (one_of, {"what": "a", "color": "green"}, "argument 'color': Invalid enum value 'green'"),
        (one_of, {"what": "a", "wish": {}}, "argument 'wish': Object missing required field"),
        (either, {"port": 1, "ports": {"a": {"name": "U"}}}, "argument 'ports': a.name: String"),
        (old_style, {"count": 1}, "argument 'count': Input should be greater than or equal to 2"),
        (needed, {}, "missing a required argument: 'count'"),
        (late, {"a": 1}, "argument 'a': Input should be greater than or equal to 3"),
        (late, {"b": "x"}, "argument 'b': String should match pattern"),
        (special, {"url": "no", "key": "k", "day": "2024-05-06"}, "argument 'url': Input should"),
        (counted, {"*": [99]}, "argument '*numbers': Input should be less than or equal to 40"),
        (mixed, {"mark": {"x": 1, "port": {"name": "U"}}}, "argument 'mark': name: String should"),
        (plain, {"n": 1}, "argument 'n': Expected `int` >= 3"),
    ],
)
async def test_invalid_values_are_refused_before_the_call(
    function: Callable[..., Any], arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError) as caught:
        await call(function, **arguments)
    text = str(caught.value)
    assert words in text
    assert f"; usage: {FunctionTool(function).name}(" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (berth, "`berth(number: int) -> int`: Look at a berth. (number: counted from the north)"),
        (several, "`several(few: list[int]) -> Any`"),
        (
            one_of,
            (
                "`one_of(what: Literal['a', 'b'], color: Color = ..., wish: Wish | None = None) -> "
                "Any`: (color: Literal['blue', 'red']; wish: {'count': int, 'word'?: str} | None)"
            ),
        ),
        (old_style, "`old_style(count: int = 3) -> int`: (count: how many)"),
        (needed, "`needed(count: int) -> int`"),
        (
            late,
            "`late(a: int = 4, b: Optional[str] = None) -> Any`: (a: three or more)",
        ),
        (plain, "`plain(n: int) -> int`: (n: three or more)"),
        (
            mixed,
            (
                "`mixed(mark: Mark) -> Any`: "
                "(mark: {'x': int, 'port'?: {'name': str, 'depth'?: float} | None})"
            ),
        ),
    ],
)
def test_the_prompt_shows_the_fields_of_models(function: Callable[..., Any], line: str) -> None:
    assert FunctionTool(function).description == line


def test_models_are_validated_in_a_run() -> None:
    cells = ["berth(99)", "FINAL([berth('4'), route({'stops': [{'name': 'Ur'}]})])"]
    model = ScriptedClient([f"```repl\n{each}\n```" for each in cells])
    with RLM(model, tools=[berth, route]) as rlm:
        result = rlm.ask("What is there?")
    assert json.loads(str(result.answer_json)) == [4, ["Port"]]
    told = str(model.requests[1].messages[-1].content)
    assert "ToolFailed: berth: argument 'number': Input should be less than or equal to 40" in told
    assert "(trip: {'stops': list[{'name': str" in str(model.requests[0].messages[0].content)


def test_plain_annotations_do_not_import_pydantic() -> None:
    code = (
        "import sys\nfrom rlm.tools import FunctionTool\n"
        "def f(a: int, b: list[str] = ()) -> dict[str, int]: ...\n"
        "FunctionTool(f)\nassert 'pydantic' not in sys.modules and 'mcp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
