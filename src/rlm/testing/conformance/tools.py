"""Tools from cells: arguments and results, in every form of call, from every thread."""

from typing import Any

from rlm.testing.conformance.bench import Repl, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("tools")

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -7, 1 << 40, 1.5, "", "é\n\u2028 𝄞 \\ '", [], {}),
    {"a": [1, {"b": None, "ü": [True, "x"]}], "2": [[]]},
)
_LARGE = 5_000_000


@checks("a result keeps its type and value")
async def results(repl: Repl) -> None:
    for value in _VALUES:
        kind = "type(None)" if value is None else type(value).__name__
        code = f"x = give(value={value!r})\nprint(x == {value!r}, isinstance(x, {kind}))"
        await repl.shows(code, "True True")


@checks("a large result arrives whole, as a value")
async def large(repl: Repl) -> None:
    await repl.shows(f"x = give(chars={_LARGE})\nlen(x), x[:2], x[-2:]", f"({_LARGE}, 'ab', 'ab')")
    await repl.shows("y = give(value=x[:200_000])\ny == x[:200_000]", "True")


@checks("a tool can be awaited, by its name and through call_tool")
async def awaited(repl: Repl) -> None:
    for call in ("give(value=1)", "give(1)", "give({'value': 1})", "call_tool('give', value=1)"):
        await repl.shows(f"await {call}", await repl.show(call))


@checks("gathered tools are all in flight", fresh=True)
async def gathered(repl: Repl) -> None:
    repl.host.hold_until = 8
    code = "import asyncio\nawait asyncio.gather(*[give(value=i) for i in range(8)])"
    await repl.shows(code, str(list(range(8))))


@checks("threads call tools at once, each gets its own result", fresh=True)
async def threads(repl: Repl) -> None:
    repl.host.hold_until = 8
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    print(list(pool.map(lambda i: give(value=i), range(8))))"
    )
    await repl.shows(code, str(list(range(8))))


@checks("a tool there is not is refused, and has no name")
async def unknown(repl: Repl) -> None:
    await repl.fails("call_tool('nothing')", "ToolFailed", "there is no tool 'nothing'")
    await repl.fails("nothing()", "NameError")
    await repl.lives()


@checks("a failed tool can be caught and called again")
async def repaired(repl: Repl) -> None:
    code = "try:\n    broken()\nexcept ToolFailed as error:\n    print(error)\nprint(give(value=2))"
    await repl.shows(code, "the tool is broken\n2")
    expect(len(repl.host.asked), 2, "how often the host was asked")


@checks("rlm_query tells which tools a child gets, by name")
async def granted(repl: Repl) -> None:
    await repl.shows("rlm_query('p', tools=['lookup'])", "'re:p'")
    await repl.shows("rlm_query('p', tools=[])", "'re:p'")
    await repl.shows("rlm_query_batched(['p', 'q'], tools=('give', 'lookup'))", "['re:p', 're:q']")
    await repl.shows("await rlm_query('p', 'c', tools=['give'])", "'re:p'")
    await repl.shows("rlm_query('p')", "'re:p'")
    expect(_grants(repl), [["lookup"], [], ["give", "lookup"], ["give"], None], "the tools granted")


@checks("rlm_query takes the tools themselves, too")
async def granted_functions(repl: Repl) -> None:
    await repl.shows("rlm_query('p', tools=[lookup, 'give'])", "'re:p'")
    expect(_grants(repl), [["lookup", "give"]], "the tools granted")


@checks("tools that are no list of names are a TypeError, and nothing is asked")
async def wrong_grants(repl: Repl) -> None:
    for given in ("'lookup'", "[3]", "[None]"):
        await repl.fails(f"rlm_query('p', tools={given})", "TypeError", "tools")
        await repl.fails(f"rlm_query_batched(['p'], tools={given})", "TypeError", "tools")
    expect(repl.host.asked, [], "what was asked")


def _grants(repl: Repl) -> list[Any]:
    return [arguments.get("tools") for _, arguments, _ in repl.host.asked]
