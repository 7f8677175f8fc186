"""Contexts: real Python values of every kind and size, and the helpers over them."""

import hashlib

from rlm.testing.conformance.bench import Repl
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("contexts")

_LARGE_CHARS = 50_000_000


@checks("texts of every width arrive unchanged", fresh=True)
async def widths(repl: Repl) -> None:
    for text in ("", "ascii", "latin é", "wide \u0416", "astral \U0001f600", "a" * 1000):
        await repl.load(text)
        await repl.shows("type(context) is str, context", repr((True, text)))
        await repl.shows("context == context_0 == P, len(context) == lenP()", "(True, True)")


@checks("lists, dicts, numbers and bytes arrive unchanged", fresh=True)
async def kinds(repl: Repl) -> None:
    for value in (["a", {"b": 1}], {"a": None, "é": [1.5, True]}, 3, b"\xff\x00", []):
        await repl.load(value)
        await repl.shows("type(context).__name__, context", repr((type(value).__name__, value)))


@checks("several contexts, and history, have their own names", fresh=True)
async def several(repl: Repl) -> None:
    await repl.load("first")
    await repl.load("second", "context_1")
    await repl.load([{"role": "user"}], "history")
    await repl.shows("context, context_1, history", "('first', 'second', [{'role': 'user'}])")
    await repl.load(["another"], "history")
    await repl.shows("history", "['another']")


@checks("a context can be loaded between cells and replaces the previous one", fresh=True)
async def replaced(repl: Repl) -> None:
    await repl.load("first")
    await repl.shows("mine = context\ncontext", "'first'")
    await repl.load("second")
    await repl.shows("mine, context, P, peek(3)", "('first', 'second', 'second', 'sec')")


@checks("characters split across chunks of a large context arrive intact", fresh=True)
async def cut_characters(repl: Repl) -> None:
    await repl.load("é\U0001f600x" * 1_500_000)
    await repl.shows("context == 'é\U0001f600x' * 1_500_000, lenP()", "(True, 4500000)")


@checks("a context of 50 MB is complete and can be searched", fresh=True)
async def large(repl: Repl) -> None:
    text = "0123456789abcdef" * (_LARGE_CHARS // 16 - 1) + "needle in the end"
    await repl.load(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    await repl.shows(
        "import hashlib\nlen(context), context.find('needle')", repr((len(text), len(text) - 17))
    )
    await repl.shows("hashlib.sha256(context.encode()).hexdigest()", repr(digest))


@checks("peek, tail, lenP and ctx read the payload", fresh=True)
async def helpers(repl: Repl) -> None:
    await repl.load("abc\ndef\n" * 1000)
    await repl.shows("peek(3), tail(4), lenP()", "('abc', 'def\\n', 8000)")
    await repl.shows(
        "ctx.slice(1, 3), ctx.find('def')[0], ctx.grep('d.f')[0]", "('bc', (4, 7, 'def'), '2: def')"
    )
    await repl.shows("ctx.chunk(5000)[1][:2], ctx.lines(1, 2)", "((5000, 8000), ['abc', 'def'])")
    await repl.load(["one", "two"])
    await repl.shows("ctx.documents(), ctx.describe()", "(['one', 'two'], 'list of 2 items (str)')")


@checks("a context in one session is not in another", fresh=True)
async def private(repl: Repl) -> None:
    await repl.load("mine")
    async with repl.bench.opened() as other:
        await other.shows("context", "''")
        await other.load("theirs")
    await repl.shows("context", "'mine'")
