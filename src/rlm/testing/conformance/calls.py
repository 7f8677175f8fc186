"""Calls from cells: what reaches the host, what comes back, and errors that can be repaired."""

import asyncio
import json
from typing import Any

from rlm.testing.conformance.bench import Repl, StoredContext, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("calls")

_PNG = b"\x89PNG\r\n\x1a\n"
_GIF = b"GIF89a"


@checks("llm_query asks the host, in all its forms")
async def llm_query(repl: Repl) -> None:
    for arguments in ("'a'", "prompt='a'", "query='a'", "text='a'"):
        await repl.shows(f"llm_query({arguments})", "'re:a'")
    await repl.shows("llm_query('a', model='small')", "'re:a'")
    expect(repl.host.asked[0], ("llm", {"model": None, "batched": False}, ["a"]), "what was asked")
    expect(repl.host.asked[-1][1]["model"], "small", "the model that was asked")


@checks("calls are counted per prompt")
async def counted(repl: Repl) -> None:
    expect((await repl.run("llm_query('a')")).calls, 1, "calls of one query")
    expect((await repl.run("r = llm_query_batched(list('abc'))")).calls, 3, "calls of a batch")
    expect((await repl.run("lookup(x=1)")).calls, 0, "calls of a tool")


@checks("a batch keeps its order, and a failed item its place")
async def batches(repl: Repl) -> None:
    await repl.shows("llm_query_batched(['a', 'b'])", "['re:a', 're:b']")
    await repl.shows("llm_batch(queries=('a', 'b'))", "['re:a', 're:b']")
    await repl.run("r = llm_query_batched(['a', 'fail:no luck', 'a'])")
    await repl.shows("[getattr(x, 'failed', False) for x in r]", "[False, True, False]")
    await repl.shows("r[1].reason, isinstance(r[1], FailedReply)", "('no luck', True)")
    await repl.shows("print(r[1])", "[call failed: no luck]")


@checks("an empty batch asks nothing, and a single string is not a batch")
async def empty_batches(repl: Repl) -> None:
    await repl.shows("llm_query_batched([]), rlm_query_batched([])", "([], [])")
    await repl.fails("llm_query_batched('abc')", "TypeError")
    expect(repl.host.asked, [], "what was asked")


@checks("equal prompts are separate samples")
async def equal_prompts(repl: Repl) -> None:
    await repl.shows("llm_query_batched(['a'] * 3)", "['re:a', 're:a', 're:a']")
    expect(repl.host.asked[0][2], ["a", "a", "a"], "what was asked")


@checks("a failed or refused call raises CallFailed, which the cell can catch")
async def failures(repl: Repl) -> None:
    await repl.fails("llm_query('fail:no luck')", "CallFailed", "no luck")
    await repl.fails("llm_query('refuse')", "CallFailed", "over the limit")
    await repl.fails("llm_query_batched(['refuse'])", "CallFailed", "over the limit")
    await repl.shows("try: llm_query('refuse')\nexcept CallFailed as e: print(e)", "over the limit")
    await repl.shows("llm_query('next')", "'re:next'")


@checks("pictures arrive byte for byte, each with its prompt; names arrive as names")
async def images(repl: Repl) -> None:
    await repl.run(f"png, gif = {_PNG!r} + bytes(range(256)), {_GIF!r}")
    await repl.shows("llm_query('a', images=[png, 'plot.png'])", "'re:a'")
    code = "llm_query_batched(['a', 'b', 'c'], images=[[png, gif], None, 'plot.png'])"
    await repl.shows(code, "['re:a', 're:b', 're:c']")
    png = _PNG + bytes(range(256))
    seen = [asked[1].get("images") for asked in repl.host.asked]
    expect(seen[0], [[png, "plot.png"]], "the pictures of one prompt")
    expect(seen[1], [[png, _GIF], [], ["plot.png"]], "the pictures of a batch")
    expect(repl.host.asked[1][2], ["a", "b", "c"], "the prompts beside them")


@checks(
    "passing something that is not a picture is an error the cell can repair, and nothing is asked"
)
async def no_images(repl: Repl) -> None:
    await repl.fails("llm_query('a', images=[b'%PDF-1.7'])", "ValueError", "PNG, JPEG, GIF or WebP")
    await repl.fails("llm_query('a', images=[3])", "TypeError", "not int")
    await repl.fails(f"llm_query('a', images=[{_GIF!r}] * 21)", "ValueError", "limit of 20")
    await repl.fails("llm_query_batched(['a', 'b'], images=[None])", "ValueError", "2 prompts")
    await repl.fails("rlm_query('a', images=['plot.png'])", "TypeError", "accepts no images")
    expect(repl.host.asked, [], "what was asked")
    await repl.shows("llm_query('a', images=[])", "'re:a'")
    expect(repl.host.asked[0][1], {"model": None, "batched": False}, "a call without pictures")


@checks("llm_query_json parses replies and asks at most twice", fresh=True)
async def json_replies(repl: Repl) -> None:
    replies = iter(["no json", 'Sure: {"a": 1}', "no", "no"])
    repl.host.reply = lambda prompt: next(replies)
    await repl.shows("llm_query_json('q')", "{'a': 1}")
    await repl.fails("llm_query_json('q')", "ValueError")
    expect(len(repl.host.asked), 4, "how often the host was asked")


@checks("map_query asks about each chunk", fresh=True)
async def map_query(repl: Repl) -> None:
    await repl.load("abcdef")
    repl.host.reply = lambda prompt: prompt[-3:]
    await repl.shows("map_query('What?', ctx.chunk(3))", "['abc', 'def']")


@checks("operators send their items in one call")
async def operators(repl: Repl) -> None:
    labels = "list(classify(['a', 'b'], ['x', 'y']))"
    await repl.shows(labels, "2 items\n['classify:a', 'classify:b']")
    await repl.shows("merge(['a'], 'Which?')", "1 items\n['merge:a']")
    fields = "list(extract([{'k': 1}], {'n': int}))"
    await repl.shows(fields, """1 items\n['extract:{"k": 1}']""")
    await repl.shows("len(answer_each('Which?', []))", "0 items\n0")
    names = [asked[1]["name"] for asked in repl.host.asked]
    expect(names, ["classify", "merge", "extract", "answer_each"], "the operators")
    expect(repl.host.asked[2][1]["options"], {"schema": {"n": "int"}}, "the options")


@checks("rlm_query passes contexts on with their types")
async def rlm_query(repl: Repl) -> None:
    await repl.shows("rlm_query('p')", "'re:p'")
    await repl.shows("rlm_query('p', context='c', model='m')", "'re:p'")
    code = "rlm_query_batched(['p', 'q', 'fail:x'], contexts=['t', None, {'a': [1]}])"
    await repl.shows(f"print(*{code})", "re:p re:q [call failed: x]")
    kinds = [asked[1]["contexts"] for asked in repl.host.asked]
    text, json = {"kind": "text"}, {"kind": "json"}
    expect(kinds, [[None], [text], [text, None, json]], "the kinds of contexts")
    expect(repl.host.asked[2][2], ["p", "q", "fail:x", "t", '{"a": [1]}'], "the parts")


@checks("tools accept positional arguments, keywords and one dict of names")
async def tools(repl: Repl) -> None:
    named = "{'name': 'lookup', 'arguments': {'name': 'é', 'n': 1}}"
    for call in (
        "lookup(name='é', n=1)",
        "lookup({'name': 'é', 'n': 1})",
        "call_tool('lookup', name='é', n=1)",
        "await lookup(name='é', n=1)",
    ):
        await repl.shows(call, named)
    await repl.shows("lookup('a', 2, n=3)['arguments']", "{'*': ['a', 2], 'n': 3}")


@checks("cite sends offsets or a quote to the host and returns the text of the place")
async def citations(repl: Repl) -> None:
    await repl.shows("cite('é quote', name='a.txt')", "'é quote'")
    place: dict[str, Any] = {"start": None, "end": None, "name": "a.txt"}
    expect(repl.host.asked[-1], ("cite", place, ["é quote"]), "what was asked")
    await repl.shows("print(cite(3, 5, 0))", "cite: no such place\nNone")
    numbered = {"start": 3, "end": 5, "name": 0}
    expect(repl.host.asked[-1], ("cite", numbered, []), "what was asked")
    await repl.fails("cite(1)", "TypeError")


@checks("a table stays on the host: calls request its rows")
async def tables(repl: Repl) -> None:
    table = {"name": "t", "reference": '"t"', "columns": ["id", "text"], "types": ["INT", "TEXT"]}
    manifest = {"source": "tables", "id": "i" * 64, "tables": [{**table, "rows": 2}]}
    await repl.session.load("context", StoredContext("source", json.dumps(manifest).encode()))
    await repl.shows("len(context), context.columns", "(2, ['id', 'text'])")
    await repl.shows("ctx.sql('select * from t where id > ?', 0)['text']", "['é', None]")
    asked = {"query": "select * from t where id > ?", "parameters": [0]}
    called = {"source": "i" * 64, "method": "sql", "arguments": asked}
    expect(repl.host.asked[-1], ("data", called, []), "what was asked")
    await repl.shows("[row['id'] for row in context]", "[1, 2]")
    await repl.shows("(await ctx.sql('select 1'))[1]['id']", "2")
    await repl.fails("ctx.sql('select broken')", "QueryFailed", "no such column: broken")
    await repl.fails("ctx.grep('é')", "AttributeError", "ctx.sql(")


@checks("a tool that fails raises ToolFailed, and wrong arguments raise TypeError")
async def failing_tools(repl: Repl) -> None:
    await repl.fails("broken()", "ToolFailed", "the tool is broken")
    await repl.fails("lookup(x=object())", "TypeError")
    await repl.shows("lookup(x=1)['arguments']", "{'x': 1}")


@checks("the time of calls in flight does not count towards a cell's time", fresh=True)
async def clock_stands_still(repl: Repl) -> None:
    repl.host.hold_until = 2
    cell = repl.begin("llm_query('a')", timeout_seconds=1.0)
    await repl.host.was_asked.wait()
    await asyncio.sleep(1.5 * repl.bench.patience)
    repl.host.release.set()
    result = await cell
    expect((result.error, result.interrupted), (None, False), "a cell that waited for its call")


@checks("a loop over refused calls still ends", fresh=True)
async def refused_for_ever(repl: Repl) -> None:
    code = "while True:\n    try: llm_query('refuse')\n    except CallFailed: pass"
    result = await repl.run(code, timeout_seconds=0.5)
    expect(result.interrupted, True, "it was interrupted")
    await repl.lives()
