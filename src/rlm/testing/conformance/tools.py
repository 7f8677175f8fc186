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
_TYPES: tuple[Any, ...] = (
    *({1, "b"}, frozenset({(1, 2), None}), b"\x00\xff", bytearray(b"x"), (1, [2, (3,)]), ()),
    *({1: "a", None: {2}, (3,): b"", "$set": [1]}, {"$set": [1]}, {"$dict": {"$tuple": ()}}),
)


@checks("a result keeps its type and value")
async def results(repl: Repl) -> None:
    for value in _VALUES:
        kind = "type(None)" if value is None else type(value).__name__
        code = f"x = give(value={value!r})\nprint(x == {value!r}, isinstance(x, {kind}))"
        await repl.shows(code, "True True")


@checks("sets, tuples, bytes and keys of every type keep their types in both directions")
async def types(repl: Repl) -> None:
    for value in _TYPES:
        for call in ("give(value={})", "give({})", "call_tool('give', {})", "vault.echo({})"):
            code = f"x = {call.format(repr(value))}\nx == {value!r}, type(x) is type({value!r})"
            await repl.shows(code, "(True, True)")


@checks("a tool can be a value of any type, given as a variable", fresh=True)
async def variables(repl: Repl) -> None:
    for value in ({1, "b"}, frozenset({(1, 2)}), (1, {"$set": [2]}, {3: b"\xff"}), b"\x00"):
        await repl.load(value, "GIVEN")
        await repl.shows(f"GIVEN == {value!r}, type(GIVEN) is type({value!r})", "(True, True)")


@checks("methods of a host object are called by name and can be awaited")
async def methods(repl: Repl) -> None:
    await repl.shows("vault.echo(1), vault.echo(value=[2]), vault.echo()", "(1, [2], None)")
    await repl.shows("await vault.echo('x')", "'x'")
    await repl.shows("import asyncio\nawait asyncio.gather(vault.echo(1), vault.echo(2))", "[1, 2]")
    await repl.shows("call_tool('vault.echo', 3), vault.reveal()", "(3, 'nothing')")
    await repl.fails("vault.echo(1, 2)", "ToolFailed", "usage: vault.echo(value: Any = None)")


@checks("what a method returns is data: a copy of the host's value")
async def copies(repl: Repl) -> None:
    await repl.shows("vault.put(1).append(2)\nvault.put(3)", "[]")
    await repl.shows("type(vault.itself()).__name__, 'object' in vault.itself()", "('str', True)")


@checks("an object has only the members it shows")
async def members(repl: Repl) -> None:
    await repl.shows("dir(vault)", "['echo', 'itself', 'put', 'reveal']")
    for name in ("opened", "inner", "secret", "_enter", "anything"):
        await repl.fails(f"vault.{name}", "AttributeError", "names: echo, put, itself, reveal")
        await repl.fails(f"call_tool('vault.{name}')", "ToolFailed", "unknown tool")
    await repl.fails("vault.opened = 1", "AttributeError")
    expect(repl.bench.vault.entered, [], "what was reached of the object")


@checks("an object and its methods explain themselves, and cells can't lose them")
async def explained(repl: Repl) -> None:
    await repl.shows("'vault.echo(value: Any = None)' in repr(vault)", "True")
    code = "import inspect\nstr(inspect.signature(vault.put)), vault.put.__doc__"
    shown = "`vault.put(item: int, shelf: list[int] = []) -> list[int]`: Return the shelf"
    result = await repl.show(code)
    expect("item: 'int', shelf: 'list[int]' = []" in result, True, "its signature")
    expect(shown in result, True, "its line")
    await repl.run("vault = 1")
    await repl.shows("vault.echo(4)", "4")


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


@checks("threads call tools at the same time, and each gets its own result", fresh=True)
async def threads(repl: Repl) -> None:
    repl.host.hold_until = 8
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    print(list(pool.map(lambda i: give(value=i), range(8))))"
    )
    await repl.shows(code, str(list(range(8))))


@checks("an unknown tool is refused and has no name")
async def unknown(repl: Repl) -> None:
    await repl.fails("call_tool('nothing')", "ToolFailed", "unknown tool 'nothing'")
    await repl.fails("nothing()", "NameError")
    await repl.lives()


@checks("a failed tool can be caught and called again")
async def repaired(repl: Repl) -> None:
    code = "try:\n    broken()\nexcept ToolFailed as error:\n    print(error)\nprint(give(value=2))"
    await repl.shows(code, "the tool is broken\n2")
    expect(len(repl.host.asked), 2, "how often the host was asked")


@checks("rlm_query says by name which tools a child gets")
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


@checks("passing tools that are not a list of names is a TypeError, and nothing is asked")
async def wrong_grants(repl: Repl) -> None:
    for given in ("'lookup'", "[3]", "[None]"):
        await repl.fails(f"rlm_query('p', tools={given})", "TypeError", "tools")
        await repl.fails(f"rlm_query_batched(['p'], tools={given})", "TypeError", "tools")
    expect(repl.host.asked, [], "what was asked")


def _grants(repl: Repl) -> list[Any]:
    return [arguments.get("tools") for _, arguments, _ in repl.host.asked]
