"""What a `functools.partial` fixes stays fixed: in every kind of callable, under every name."""

import asyncio
import dataclasses
import functools
import re
import types
from collections.abc import Callable
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, AgentRLM, ScriptedClient
from rlm.errors import ToolError
from rlm.tools import FunctionTool

SAFE = "preset"
pytestmark = pytest.mark.filterwarnings("ignore:functools.partial will be:FutureWarning")
"""Python 3.13 warns of `Held`: a later version will pass `self` to its partial."""

partial = functools.partial


def fetch(q: str = "", **options: Any) -> dict[str, Any]:
    return {"q": q, **options}


def by_position(tenant: str, q: str = "", **options: Any) -> dict[str, Any]:
    return {**options, "tenant": tenant, "q": q}


def only_by_position(tenant: str, q: str = "", /, **options: Any) -> dict[str, Any]:
    return {"tenant": tenant, "q": q, **options}


def anything(*words: str, **options: Any) -> dict[str, Any]:
    return {"q": "".join(words), **options}


async def fetch_later(q: str = "", **options: Any) -> dict[str, Any]:
    return {"q": q, **options}


def named(q: str = "", tenant: str = "") -> dict[str, Any]:
    return {"q": q, "tenant": tenant}


@functools.wraps(partial(fetch, tenant=SAFE))
def around_a_partial(*words: Any, **options: Any) -> dict[str, Any]:
    return partial(fetch, tenant=SAFE)(*words, **options)


@functools.wraps(partial(named, tenant=SAFE))
def around_a_named_preset(*words: Any, **options: Any) -> dict[str, Any]:
    return partial(named, tenant=SAFE)(*words, **options)


class Partial(functools.partial[Any]):
    """A subclass is not merged with the partial around it."""


class Desk:
    def fetch(self, q: str = "", **options: Any) -> dict[str, Any]:
        return {"q": q, **options}

    def keep(self, tenant: str, q: str = "", **options: Any) -> dict[str, Any]:
        return {**options, "tenant": tenant, "q": q}

    named = functools.partialmethod(fetch, tenant=SAFE)
    placed = functools.partialmethod(keep, SAFE)
    __call__ = functools.partialmethod(fetch, tenant=SAFE)


class Caller:
    def __call__(self, q: str = "", **options: Any) -> dict[str, Any]:
        return {"q": q, **options}


class Held:
    """An object whose call is a partial, which takes no `self`."""

    __call__ = partial(fetch, tenant=SAFE)


class Record:
    def __init__(self, q: str = "", **options: Any) -> None:
        self.q, self.options = q, options

    def model_dump(self) -> dict[str, Any]:
        return {"q": self.q, **self.options}


class Started(Record):
    __init__ = functools.partialmethod(Record.__init__, tenant=SAFE)


@dataclasses.dataclass
class Row:
    tenant: str
    q: str = ""


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True, extra="allow")
    tenant: str = pydantic.Field(alias="tenantId")
    q: str = ""


class Chosen(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True, extra="allow")
    tenant: str = pydantic.Field(
        validation_alias=pydantic.AliasChoices(
            "tenantId", pydantic.AliasPath("who", "tenant"), "customer"
        )
    )
    q: str = ""


@pydantic.validate_call(config=pydantic.ConfigDict(populate_by_name=True))
def validated(
    q: str = "", tenant: Annotated[str, pydantic.Field(alias="tenantId")] = "", **options: Any
) -> dict[str, Any]:
    return {**options, "q": q, "tenant": tenant}


BY_NAME: Any = {"tenant": SAFE}
"""What the checker of types does not know that a model takes."""

CALLABLES: dict[str, Callable[..., Any]] = {
    "taken as **kwargs": partial(fetch, tenant=SAFE),
    "a parameter": partial(named, tenant=SAFE),
    "by position": partial(by_position, SAFE),
    "positional-only": partial(only_by_position, SAFE),
    "*args and **kwargs": partial(anything, tenant=SAFE),
    "nested": partial(partial(fetch, tenant=SAFE), other=1),
    "nested, of a subclass": partial(Partial(fetch, tenant=SAFE), other=1),
    "set again": partial(partial(fetch, tenant="before"), tenant=SAFE),
    "async": partial(fetch_later, tenant=SAFE),
    "bound method": partial(Desk().fetch, tenant=SAFE),
    "partialmethod": Desk().named,
    "partialmethod by position": Desk().placed,
    "partialmethod of the class": partial(Desk.named, Desk()),
    "partialmethod bound later": types.MethodType(Desk.named, Desk()),
    "method made of a partial": types.MethodType(partial(Desk.fetch, tenant=SAFE), Desk()),
    "object": partial(Caller(), tenant=SAFE),
    "object whose call is a partialmethod": Desk(),
    "object whose call is a partial": Held(),
    "class": partial(Record, tenant=SAFE),
    "class whose __init__ is a partialmethod": Started,
    "dataclass": partial(Row, SAFE),
    "pydantic alias": partial(Aliased, **BY_NAME),
    "pydantic alias set": partial(Aliased, tenantId=SAFE),
    "pydantic alias choices": partial(Chosen, tenant=SAFE),
    "validate_call": partial(validated, tenant=SAFE),
    "update_wrapper": functools.update_wrapper(partial(fetch, tenant=SAFE), fetch),
    "update_wrapper by position": functools.update_wrapper(partial(by_position, SAFE), by_position),
    "wraps": around_a_partial,
    "wraps, a parameter": around_a_named_preset,
    "lru_cache": functools.lru_cache(partial(fetch, tenant=SAFE)),
    "staticmethod": staticmethod(partial(fetch, tenant=SAFE)),
}
ATTEMPTS: tuple[dict[str, Any], ...] = (
    {"tenant": "evil"},
    {"q": "x", "tenant": "evil"},
    {"tenantId": "evil"},
    {"customer": "evil"},
    {"who": {"tenant": "evil"}},
    {"*": ["x", "evil"]},
    {"*": ["x"], "tenant": "evil"},
    {"*": ["x", "y", "evil"]},
)


def called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    return asyncio.run(FunctionTool(function, name="fetch").call(arguments))


@pytest.mark.parametrize("kind", CALLABLES)
def test_no_way_of_calling_changes_a_preset_argument(kind: str) -> None:
    refused = 0
    for arguments in ATTEMPTS:
        try:
            result = called(CALLABLES[kind], arguments)
        except ToolError:
            refused += 1
        else:
            assert "preset" in str(result), (arguments, result)
            assert result.get("tenant", SAFE) == SAFE, (arguments, result)
    assert refused >= 3  # By its own name, in each of the ways.


@pytest.mark.parametrize("kind", CALLABLES)
def test_preset_arguments_are_hidden_and_others_can_be_set(kind: str) -> None:
    tool = FunctionTool(CALLABLES[kind], name="fetch")
    for name in ("tenant", "other", SAFE):
        assert name not in tool.usage
    assert "x" in str(asyncio.run(tool.call({"q": "x"})))


@pytest.mark.parametrize("kind", CALLABLES)
def test_setting_a_preset_argument_is_refused_without_showing_its_value(kind: str) -> None:
    with pytest.raises(ToolError, match="'tenant' is fixed for this tool") as caught:
        called(CALLABLES[kind], {"tenant": "evil"})
    assert SAFE not in str(caught.value)


def test_a_positional_only_name_may_also_be_a_preset_keyword() -> None:
    tool = FunctionTool(partial(only_by_position, tenant=SAFE), name="fetch")
    assert tool.usage == "fetch(tenant: str, q: str = '', /, **options: Any) -> dict[str, Any]"
    assert asyncio.run(tool.call({"*": ["first"]}))["tenant"] == SAFE
    with pytest.raises(ToolError, match="is fixed"):
        asyncio.run(tool.call({"*": ["first"], "tenant": "evil"}))


def test_a_dict_for_the_first_parameter_may_have_any_key() -> None:
    def keep(row: dict[str, Any], **options: Any) -> dict[str, Any]:
        return {"row": row, **options}

    result = called(partial(keep, tenant=SAFE), {"tenant": "theirs", "size": 3})
    assert result == {"row": {"tenant": "theirs", "size": 3}, "tenant": SAFE}


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])


@given(
    layers=st.lists(
        st.tuples(
            st.sampled_from(["partial", "subclass", "wraps", "update"]),
            st.dictionaries(NAMES, st.just(SAFE), max_size=2),
        ),
        min_size=1,
        max_size=5,
    ),
    positional=st.lists(st.just("evil"), max_size=3),
    keywords=st.dictionaries(NAMES, st.just("evil"), max_size=4),
)
def test_nested_presets_arrive_exactly_as_set(
    layers: list[tuple[str, dict[str, str]]], positional: list[str], keywords: dict[str, str]
) -> None:
    def core(a: str = "", b: str = "", /, c: str = "", *more: str, d: str = "", **rest: str) -> Any:
        return {"by keyword": {"c": c, "d": d, **rest}, "by position": [a, b, *more]}

    function: Callable[..., Any] = core
    fixed: set[str] = set()
    for kind, preset in layers:
        function = _layer(kind, function, preset)
        fixed |= preset.keys()
    tool = FunctionTool(function, name="core")
    shown = tool.usage.partition(" ->")[0]
    for name in fixed & {"c", "d", "e"}:
        assert not re.search(rf"\b{name}: str", shown)
    try:
        result = asyncio.run(tool.call({"*": positional, **keywords}))
    except ToolError:
        return
    assert fixed.isdisjoint(keywords)
    for name in fixed:
        assert result["by keyword"][name] == SAFE


def _layer(kind: str, function: Callable[..., Any], preset: dict[str, str]) -> Callable[..., Any]:
    inner = (Partial if kind == "subclass" else partial)(function, **preset)
    if kind == "update":
        return functools.update_wrapper(inner, function)
    if kind == "wraps":

        @functools.wraps(inner)
        def outer(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        return outer
    return inner


ATTACK = """```repl
try:
    print(fetch(tenant='evil'))
except Exception as error:
    print(error)
```"""


async def test_a_cell_of_a_run_or_an_agent_cannot_change_a_preset() -> None:
    seen: list[Any] = []

    def fetch(**options: Any) -> str:
        seen.append(options)
        return "done"

    tools = [partial(fetch, tenant=SAFE)]
    use = ATTACK.replace("fetch(tenant='evil')", "fetch()")
    replies = [ATTACK, use, "```repl\nFINAL('ok')\n```"]
    async with RLM(ScriptedClient(replies), tools=tools) as rlm:
        assert (await rlm.aask("q")).answer == "ok"
    assert seen == [{"tenant": SAFE}]
    async with AgentRLM(ScriptedClient([*replies, *replies])) as agent:
        assert [piece async for piece in agent.chat("q", tools=tools)] == ["ok"]
        agent.register_tool("fetch", tools[0])
        assert [piece async for piece in agent.chat("q")] == ["ok"]
    assert seen == [{"tenant": SAFE}] * 3
