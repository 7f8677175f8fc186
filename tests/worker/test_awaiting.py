"""The await rewrite: our functions get their async form, everything else behaves as written."""

import ast
import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.worker import compiling


def rewritten(source: str) -> str:
    return ast.unparse(compiling.use_async_forms(ast.parse(source))).replace(
        compiling.ASYNC_FORM, "A"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("await f(1)", "await A(f)(1)"),
        ("await o.f(x=1)", "await A(o.f)(x=1)"),
        ("await gather(f(1), g)", "await A(gather)(A(f)(1), g)"),
        ("await gather(*[f(x) for x in y])", "await A(gather)(*[A(f)(x) for x in y])"),
        ("await gather(*(f(x) for x in y))", "await A(gather)(*(A(f)(x) for x in y))"),
        ("await gather(*[f(1), g(2)])", "await A(gather)(*[A(f)(1), A(g)(2)])"),
        ("t = create_task(f(1))\nawait t", "t = create_task(A(f)(1))\nawait t"),
        (
            "t = [tg.create_task(f(x)) for x in y]\nawait z",
            "t = [tg.create_task(A(f)(x)) for x in y]\nawait z",
        ),
        ("await wait_for(f(h(1)), timeout=g())", "await A(wait_for)(A(f)(h(1)), timeout=g())"),
        ("await f(await g(1))", "await A(f)(await A(g)(1))"),
        ("async def a():\n    return await f(1)", "async def a():\n    return await A(f)(1)"),
        ("async def a():\n    create_task(f(1))", "async def a():\n    create_task(A(f)(1))"),
        ("async def a(x=gather(f(1))):\n    pass", "async def a(x=gather(f(1))):\n    pass"),
        ("gather(f(1))", "gather(f(1))"),
        ("await x\n\ndef s():\n    gather(f(1))", "await x\n\ndef s():\n    gather(f(1))"),
        ("await x\ny = lambda: gather(f(1))", "await x\ny = lambda: gather(f(1))"),
        ("f(1)", "f(1)"),
    ],
)
def test_calls_are_rewritten_to_be_awaitable(source: str, expected: str) -> None:
    assert rewritten(source) == expected


@pytest.mark.parametrize(
    ("source", "is_async"),
    [
        ("await x", True),
        ("async for a in b: pass", True),
        ("async with a: pass", True),
        ("[x async for x in y]", True),
        ("if 1:\n    print(await x)", True),
        ("async def f():\n    await x", False),
        ("class A:\n    async def f(self):\n        await x", False),
        ("x = 1", False),
    ],
)
def test_top_level_await_is_recognised(source: str, is_async: bool) -> None:
    assert compiling.awaits_at_top_level(ast.parse(source)) is is_async


numbers = st.integers(-100, 100).map(lambda n: f"plain({n})")
awaited: st.SearchStrategy[str] = st.deferred(
    lambda: st.one_of(
        numbers,
        st.builds("(await coroutine({}))".format, awaited),
        st.builds(
            "sum(await asyncio.gather(coroutine({}), coroutine({})))".format, awaited, awaited
        ),
        st.builds(
            "sum(await asyncio.gather(*[coroutine(v) for v in ({}, {})]))".format, awaited, awaited
        ),
        st.builds("(await asyncio.wait_for(coroutine({}), None))".format, awaited),
    )
)


@settings(max_examples=30)
@given(awaited)
def test_rewriting_does_not_change_the_meaning_of_other_code(expression: str) -> None:
    source = f"async def main():\n    return {expression}"
    names: dict[str, Any] = {
        "asyncio": asyncio,
        "plain": lambda n: n,
        compiling.ASYNC_FORM: lambda f: f,
    }

    async def coroutine(value: int) -> int:
        return value * 2

    names["coroutine"] = coroutine
    results = []
    for tree in (ast.parse(source), compiling.use_async_forms(ast.parse(source))):
        exec(compile(tree, "<test>", "exec"), names)
        results.append(asyncio.run(names["main"]()))
    assert results[0] == results[1]
