"""Objects, modules and classes as tools: what cells may use of them, and what is refused."""

import abc
import asyncio
import dataclasses
import enum
import functools
import math
import random
import types
from typing import Any, ClassVar

import pytest

from rlm import RLM, Limits, ScriptedClient
from rlm.errors import ConfigError, ToolError
from rlm.events import ToolCalled
from rlm.tools import FunctionTool, ObjectTool, as_tools


class Base(abc.ABC):  # noqa: B024
    def inherited(self) -> str:
        """From the base."""
        return "inherited"

    def hidden(self) -> str:
        return "hidden"


class Helper:
    def deep(self) -> str:
        return "deep"


class Store(Base):
    """Holds rows."""

    limit = 5
    helper = Helper()
    Nested = Helper
    hidden = None  # type: ignore[assignment]
    made: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.version = "1.0"
        self.instance_method = lambda: "mine"
        self.touched = False

    def add(self, row: Any, twice: bool = False) -> int:
        """Add a row.

        More about it.
        """
        self.rows += [row] * (2 if twice else 1)
        return len(self.rows)

    def all(self) -> list[Any]:
        return self.rows

    def budget(self) -> int:
        """A method may have a name of the REPL."""
        return 7

    def itself(self) -> "Store":
        return self

    def types(self) -> Any:
        return {1, 2}, frozenset({"a"}), b"\x00\xff", bytearray(b"x"), (1, (2,)), {3: None}

    async def later(self, n: int) -> int:
        return n + 1

    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    @staticmethod
    def double(n: int) -> int:
        return 2 * n

    @functools.lru_cache  # noqa: B019
    def cached(self) -> str:
        return "cached"

    add_two = functools.partialmethod(add, twice=True)

    @property
    def size(self) -> int:
        self.touched = True
        return len(self.rows)

    def _private(self) -> str:
        return "private"

    def __len__(self) -> int:
        return len(self.rows)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a: f"made by __getattr__: {name}"


PUBLIC = {
    *("inherited", "add", "all", "budget", "itself", "types", "later", "kind", "double", "cached"),
    "add_two",
}


def members(*given: Any, **named: Any) -> set[str]:
    tools, values = as_tools(*given, **named)
    assert values == {}
    return {tool.name for tool in tools}


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


async def cell(text: str, tools: Any, environment: str = "local", **more: Any) -> Any:
    """Run one cell with these tools, and return the answer that it submits."""
    client = ScriptedClient([code(text)])
    one = RLM(client, tools=tools, environment=environment, **more)
    try:
        result = await one.aask("q", "c")
        assert result.stop_reason == "answer", result.detail
        return result.answer
    finally:
        await one.aclose()


# -- which members -------------------------------------------------------------------------------


def test_public_methods_of_its_own_class_are_tools_and_nothing_else() -> None:
    store = Store()
    assert members({"db": store}) == {"db", *(f"db.{each}" for each in PUBLIC)}
    assert not store.touched


def test_descriptions_in_the_prompt() -> None:
    lines = {tool.name: tool.description for tool in as_tools({"db": Store()})[0]}
    assert lines["db"] == "`db`: Holds rows."
    assert lines["db.add"] == "`db.add(row: Any, twice: bool = False) -> int`: Add a row."
    assert lines["db.add_two"] == "`db.add_two(row: Any) -> int`: Add a row."
    described = as_tools({"db": {"tool": Store(), "description": "My rows."}})[0]
    assert described[0].description == "`db`: My rows."


def test_expose_names_exactly_what_cells_may_use() -> None:
    given = {"tool": Store(), "expose": ["all", "version", "limit", "size"]}
    tools = {tool.name: tool for tool in as_tools({"db": given})[0]}
    assert set(tools) == {"db", "db.all", "db.version", "db.limit", "db.size"}
    assert tools["db.version"].description == "`db.version`"
    both = as_tools([ObjectTool(Store(), name="db", expose=["all"])])[0]
    assert [tool.name for tool in both] == ["db", "db.all"]


@pytest.mark.parametrize(
    ("expose", "words"),
    [
        (["_private"], "expose can't name '_private'"),
        (["__class__"], "expose can't name '__class__'"),
        (["helper.deep"], "expose can't name 'helper.deep'"),
        ([5], "expose can't name 5"),
        ("all", "expose must be a list of names"),
        ([], "expose is empty"),
        (["helper"], "'helper' is an object of type Helper, but only methods and data"),
    ],
)
def test_invalid_expose_lists_are_refused(expose: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        as_tools({"db": {"tool": Store(), "expose": expose}})
    assert "\n" not in str(caught.value)


class Plain:
    """Has data, but no methods."""

    def __init__(self) -> None:
        self.rate = 0.5
        self.secret = object()


class Many:
    """Has too many methods for a prompt."""


for number in range(41):
    setattr(Many, f"method_{number:02}", lambda self: 1)


class Color(enum.Enum):
    RED = object()


@pytest.mark.parametrize(
    ("tool", "line"),
    [
        (math, '"x": {"tool": math, "expose": ["acos", '),
        (types, '"x": {"tool": types, "expose": ['),
        (Store, '"x": {"tool": Store, "expose": ["kind", "double"'),
        (random.Random(1), '"x": {"tool": x, "expose": ['),
        (Many(), '"x": {"tool": x, "expose": ["method_00", "method_01", '),
        (Plain(), '"x": {"tool": x, "expose": ["rate"]}'),
    ],
)
def test_an_object_that_needs_expose_is_refused_with_the_line_to_write(
    tool: Any, line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        as_tools({"x": tool})
    text = str(caught.value)
    assert line in text
    assert "\n" not in text
    written = text.partition("cells may use: ")[2].removeprefix("tools=")
    names: dict[str, Any] = {"math": math, "types": types, "Store": Store, "x": tool}
    assert len(as_tools(eval(written, names))[0]) > 1


def test_objects_that_cannot_be_tools() -> None:
    for tool in (object(), Color.RED):
        with pytest.raises(ConfigError, match="pass a function or data instead"):
            as_tools({"x": tool})
    with pytest.raises(ConfigError, match=r'give it one, as in tools=\{"db": db\}'):
        ObjectTool(Store())
    with pytest.raises(ConfigError, match="to pass values, use a dict"):
        as_tools([Store()])
    with pytest.raises(ConfigError, match="expose works only for objects"):
        as_tools({"f": {"tool": math.sqrt, "expose": ["x"]}})
    with pytest.raises(ConfigError, match="is a method of the objects of Store"):
        as_tools({"x": {"tool": Store, "expose": ["add"]}})


def test_data_classes_are_still_functions() -> None:
    @dataclasses.dataclass
    class Row:
        id: int

    tools, _ = as_tools({"Row": Row, "int": int})
    assert [type(tool) for tool in tools] == [FunctionTool, FunctionTool]


def test_callable_objects_of_our_own_have_methods_too() -> None:
    class Search:
        """Searches."""

        def __call__(self, word: str) -> str:
            return word

        def more(self) -> str:
            return "more"

    tools, _ = as_tools({"find": Search(), "half": functools.partial(math.pow, 2)})
    assert [tool.name for tool in tools] == ["find", "find.more", "half"]
    assert tools[0].description.startswith("`find(word: str) -> str`")


# -- in cells -------------------------------------------------------------------------------------

USES = """
out = [db.add(1), db.add(row=2), db.add_two(3), db.double(4), db.kind(), db.inherited()]
out += [db.budget(), db.cached(), await db.later(5), call_tool("db.double", 6)]
FINAL(out + [db.all()])
"""


@pytest.mark.parametrize("environment", ["local", "inprocess", "agent"])
async def test_cells_can_call_methods(environment: str) -> None:
    answer = await cell(USES, {"db": Store()}, environment)
    assert answer == "[1, 2, 4, 8, 'Store', 'inherited', 7, 'cached', 6, 12, [1, 2, 3, 3]]"


async def test_types_are_preserved_in_both_directions() -> None:
    seen: list[Any] = []

    class Echo:
        def give(self, value: Any) -> Any:
            seen.append(value)
            return value

    values = ({1, "b"}, frozenset({(1, 2)}), b"\x00\xff", bytearray(b"x"), (1, [2, (3,)]))
    text = (
        f"values = {values!r}\n"
        "back = [e.give(each) for each in values]\n"
        "odd = {1: 'a', None: {2}, (3,): b'', '$set': [1], True: 0}\n"
        "FINAL([back == list(values), [type(b) for b in back] == [type(v) for v in values],"
        " e.give(odd) == odd, e.give({'$set': [1]}), SETS == {1, 2}, type(SETS).__name__, RAW])"
    )
    answer = await cell(text, {"e": Echo(), "SETS": {1, 2}, "RAW": {"k": (b"\xff", {3: "$x"})}})
    assert answer == (
        "[True, True, True, {'$set': [1]}, True, 'set', {'k': (b'\\xff', {3: '$x'})}]"
    )
    assert seen[:5] == list(values)
    assert [type(each) for each in seen[:5]] == [type(each) for each in values]


async def test_results_are_copied_data() -> None:
    store = Store()
    store.rows.append(1)
    answer = await cell(
        "rows = db.all()\nrows.append(2)\nFINAL([db.all(), db.itself()])", {"db": store}
    )
    assert answer == f"[[1], '<{__name__}.Store object>']"


LOOKS = """
import inspect, pydoc
FINAL([repr(db), dir(db), str(inspect.signature(db.add)), db.add.__doc__, db.add.__name__,
       "Add a row" in pydoc.render_doc(db), pydoc.plain(pydoc.render_doc(db.add)).splitlines()[2],
       str(inspect.signature(find)), 'db' in SHOW_VARS()])
"""


async def test_a_proxy_describes_itself() -> None:
    def find(word: str, limit: int = 5, *, mode: str = "a") -> list[str]:
        return [word]

    given = {"db": {"tool": Store(), "expose": ["add", "version"]}, "find": find}
    shown = await cell(LOOKS, given)
    assert shown == str(
        [
            "<db: an object with db.add(row: Any, twice: bool = False) -> int, db.version>",
            ["add", "version"],
            "(row: 'Any', twice: 'bool' = False) -> 'int'",
            "`db.add(row: Any, twice: bool = False) -> int`: Add a row.",
            "add",
            True,
            "add(row: 'Any', twice: 'bool' = False) -> 'int'",
            "(word: 'str', limit: 'int' = 5, *, mode: 'str' = 'a') -> 'list[str]'",
            False,
        ]
    )


async def test_members_that_are_not_exposed_cannot_be_reached() -> None:
    store = Store()
    text = """
out = []
names = ["size", "helper", "Nested", "hidden", "limit", "rows", "instance_method", "made",
         "_private", "anything", "__init__", "__dict__", "__globals__", "add.__globals__",
         "__class__", "__class__.__init__", "", "."]
for name in names:
    try: out.append((name, getattr(db, name)())) if name.isidentifier() and name[:2] != '__' else 0
    except AttributeError as error: pass
    try: out.append((name, call_tool("db." + name)))
    except ToolFailed as error: assert "unknown tool" in str(error), error
for attempt in ("db.x = 1", "db.add = 1", "del db.add"):
    try: exec(attempt); out.append(attempt)
    except AttributeError: pass
FINAL(out)
"""
    assert await cell(text, {"db": store}) == "[]"
    assert not store.touched


async def test_attributes_are_read_on_each_access() -> None:
    store = Store()
    given = {"db": {"tool": store, "expose": ["add", "size", "version"]}, "math": None}
    given["math"] = {"tool": math, "expose": ["pi", "floor"]}
    text = "FINAL([db.size, db.add(1), db.size, db.version, math.floor(math.pi)])"
    assert await cell(text, given) == "[0, 1, 1, '1.0', 3]"


async def test_wrong_arguments_are_errors_of_the_method() -> None:
    text = """
try: db.add()
except ToolFailed as error: print(error)
try: db.double("x")
except ToolFailed as error: print(error)
try: db(1)
except TypeError as error: print(error)
try: call_tool("db")
except ToolFailed as error: print(error)
FINAL(1)
"""
    tool = ObjectTool(Store(), name="db", expose=["add", "double"])
    with pytest.raises(
        ToolError, match=r"db\.add: missing a required argument: 'row'.*; usage: db"
    ):
        await tool.members[0].call({})
    with pytest.raises(ToolError, match=r"db is an object: call one of its methods: db\.add\("):
        await tool.call({})
    assert await cell(text, [tool]) == "1"


async def test_an_object_can_be_granted_to_children_by_its_name() -> None:
    client = ScriptedClient(
        [code("FINAL([rlm_query('a', 'x', tools=[db]), rlm_query('b', 'x', tools=[])])")],
        rules=[
            ("Query: a", code("FINAL(db.double(4))")),
            ("Query: b", code("FINAL('db' in dir())")),
        ],
    )
    one = RLM(client, tools={"db": Store()}, limits=Limits(max_depth=2))
    assert (await one.aask("q", "c")).answer == "['8', 'False']"
    await one.aclose()


async def test_a_proxy_survives_saving_a_chat(tmp_path: Any) -> None:
    client = ScriptedClient([code("mine = db\nFINAL(1)"), code("FINAL(mine.double(4))")])
    one = RLM(client, tools={"db": Store()})
    chat = one.chat("c")
    await chat.aask("First?")
    path = await chat.asave(tmp_path / "chat")
    await chat.aclose()
    again = one.chat(load=path)
    assert (await again.aask("Second?")).answer == "8"
    await again.aclose()
    await one.aclose()


async def test_method_calls_are_journaled_and_not_repeated(tmp_path: Any) -> None:
    store = Store()
    script = [code("x = [db.add({1}), db.types()]"), code("import time; time.sleep(60)")]
    one = RLM(client := ScriptedClient(script), tools={"db": store}, journal=tmp_path)
    run = asyncio.create_task(one.aask("q", "c", run_id="mine"))
    while len(client.requests) < 2:
        await asyncio.sleep(0.01)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await one.aclose()
    client = ScriptedClient([code("FINAL(x)")])
    limits = Limits(cell_seconds=1)
    one = RLM(client, tools={"db": store}, journal=tmp_path, limits=limits)
    result = await one.aask("q", "c", run_id="mine")
    await one.aclose()
    assert result.answer.startswith("[1, ({1, 2}, frozenset({'a'}), b'\\x00\\xff', ")
    assert store.rows == [{1}]
    called = [event for event in result.events if isinstance(event, ToolCalled)]
    assert [event.stored for event in called] == [True, True]
    assert called[0].arguments == {"*": [{"$set": [1]}]}
    assert result.stop_reason == "answer"
