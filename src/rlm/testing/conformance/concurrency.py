"""Threads and asyncio in cells: calls made at once are in flight at once."""

import asyncio

from rlm.testing.conformance.bench import Repl, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("concurrency")

_TWENTY = "['re:' + str(i) for i in range(20)]"


@checks("twenty threads have twenty calls in flight", fresh=True)
async def threads(repl: Repl) -> None:
    repl.host.hold_until = 20
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(20) as pool:\n"
        "    replies = list(pool.map(llm_query, map(str, range(20))))\n"
        f"replies == {_TWENTY}"
    )
    await repl.shows(code, "True")


@checks("gathered calls are all in flight, in every form", fresh=True)
async def gather(repl: Repl) -> None:
    await repl.run(
        "import asyncio\nasync def one(i):\n    return await llm_query(str(i))\n"
        "async def main():\n    return await asyncio.gather(*map(one, range(20)))"
    )
    for spelling in (
        "await asyncio.gather(*[llm_query(str(i)) for i in range(20)])",
        "[await t for t in [asyncio.create_task(llm_query(str(i))) for i in range(20)]]",
        "await main()",
        "asyncio.run(main())",
    ):
        repl.host.start_over(hold_until=20)
        await repl.shows(f"({spelling}) == {_TWENTY}", "True")


@checks("every call function can be awaited")
async def awaited(repl: Repl) -> None:
    for code, shown in {
        "await llm_query('a')": "'re:a'",
        "await llm_query_batched(['a'])": "['re:a']",
        "await rlm_query('a')": "'re:a'",
        "await budget()": "{'calls': 7}",
        "await call_tool('lookup')": "{'name': 'lookup', 'arguments': {}}",
        "import asyncio\nawait asyncio.to_thread(llm_query, 'a')": "'re:a'",
    }.items():
        await repl.shows(code, shown)


@checks("many threads get their own replies")
async def own_replies(repl: Repl) -> None:
    code = (
        "import threading\nwrong = []\n"
        "def work(n):\n"
        "    for i in range(25):\n"
        "        if llm_query(f'{n}.{i}') != f're:{n}.{i}': wrong.append(n)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]\n"
        "for t in threads: t.start()\n"
        "work('main')\n"
        "for t in threads: t.join()\n"
        "wrong"
    )
    await repl.shows(code, "[]")


@checks("answers that arrive in another order reach their callers", fresh=True)
async def reordered(repl: Repl) -> None:
    repl.host.hold_until = 10
    await repl.shows(
        "import asyncio\n"
        "r = await asyncio.gather(*[llm_query(str(i)) for i in range(10)])\n"
        "r == ['re:' + str(i) for i in range(10)]",
        "True",
    )


@checks("calls are nested: a thread that gathers, a task that batches", fresh=True)
async def nested(repl: Repl) -> None:
    code = (
        "import asyncio, threading\ngot = []\n"
        "async def inner(): return await asyncio.gather(llm_query('a'), llm_query_batched(['b']))\n"
        "t = threading.Thread(target=lambda: got.append(asyncio.run(inner())))\n"
        "t.start()\n"
        "got.append(await inner())\n"
        "t.join()\n"
        "got == [['re:a', ['re:b']]] * 2"
    )
    await repl.shows(code, "True")


@checks("a call that the cell cancels does not disturb the next", fresh=True)
async def cancelled(repl: Repl) -> None:
    repl.host.hold_until = 2
    waiting = "await asyncio.wait_for(llm_query('slow'), 0.05)"
    code = f"import asyncio\ntry: {waiting}\nexcept asyncio.TimeoutError: print('late')"
    await repl.shows(code, "late")
    await repl.shows("llm_query('next')", "'re:next'")


@checks("threads left behind get their answers during later cells", fresh=True)
async def left_behind(repl: Repl) -> None:
    repl.host.hold_until = 2
    await repl.run(
        "import threading\ngot = []\n"
        "t = threading.Thread(target=lambda: got.append(llm_query('late')))\nt.start()"
    )
    await repl.shows("'between'", "'between'")
    await repl.shows("llm_query('second'); t.join(); got", "['re:late']")


@checks("two sessions work at the same time", fresh=True)
async def two_sessions(repl: Repl) -> None:
    async with repl.bench.opened() as other:
        code = "[llm_query(str(i)) for i in range(50)] == ['re:' + str(i) for i in range(50)]"
        shown = await asyncio.gather(repl.show(code), other.show(code))
    expect(shown, ["True", "True"], "what both showed")
