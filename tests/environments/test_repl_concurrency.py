"""Threads and asyncio: calls made at once are in flight at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.environments.conftest import Repl

NUMBERS = "['re:' + str(i) for i in range(20)]"


async def test_twenty_threads_have_twenty_calls_in_flight(repl: Repl) -> None:
    repl.host.hold_until = 20
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(20) as pool:\n"
        "    replies = list(pool.map(llm_query, map(str, range(20))))\n"
        f"replies == {NUMBERS}"
    )
    assert await repl.show(code) == "True"
    assert repl.host.max_in_flight == 20


async def test_the_main_thread_and_others_make_calls_at_the_same_time(repl: Repl) -> None:
    repl.host.hold_until = 3
    code = (
        "import threading\ngot = []\n"
        "threads = [threading.Thread(target=lambda i=i: got.append(llm_query(i))) for i in '12']\n"
        "for t in threads: t.start()\n"
        "got.append(llm_query('main'))\n"
        "for t in threads: t.join()\n"
        "sorted(got)"
    )
    assert await repl.show(code) == "['re:1', 're:2', 're:main']"


async def test_many_threads_making_many_calls_get_their_own_replies(repl: Repl) -> None:
    code = (
        "import threading\nwrong = []\n"
        "def work(n):\n"
        "    for i in range(50):\n"
        "        if llm_query(f'{n}.{i}') != f're:{n}.{i}': wrong.append(n)\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]\n"
        "for t in threads: t.start()\n"
        "work('main')\n"
        "for t in threads: t.join()\n"
        "wrong"
    )
    result = await repl.run(code)
    assert (result.stdout, result.calls) == ("[]\n", 13 * 50)


async def test_a_thread_is_woken_if_the_event_loop_read_its_answer(repl: Repl) -> None:
    code = (
        "import asyncio, threading\n"
        "for n in range(300):\n"
        "    got = []\n"
        "    thread = threading.Thread(target=lambda: got.append(llm_query('t')))\n"
        "    thread.start()\n"
        "    got.append(await llm_query('a'))\n"
        "    while thread.is_alive(): await asyncio.sleep(0)\n"
        "    assert sorted(got) == ['re:a', 're:t']\n"
        "n"
    )
    assert await repl.show(code) == "299"


async def test_gathered_calls_are_all_in_flight(repl: Repl) -> None:
    gathers = [
        "await asyncio.gather(*[llm_query(str(i)) for i in range(20)])",
        "await asyncio.gather(*(llm_query(str(i)) for i in range(20)))",
        "[await t for t in [asyncio.create_task(llm_query(str(i))) for i in range(20)]]",
        "await main()",
        "asyncio.run(main())",
    ]
    await repl.run(
        "import asyncio\nasync def one(i):\n    return await llm_query(str(i))\n"
        "async def main():\n    return await asyncio.gather(*map(one, range(20)))"
    )
    for gather in gathers:
        repl.host.start_over(hold_until=20)
        assert (gather, await repl.show(f"({gather}) == {NUMBERS}")) == (gather, "True")
        assert repl.host.max_in_flight == 20


async def test_a_task_group_and_wait_for(repl: Repl) -> None:
    repl.host.hold_until = 3
    code = (
        "import asyncio\nasync with asyncio.TaskGroup() as group:\n"
        "    tasks = [group.create_task(llm_query(c)) for c in 'ab']\n"
        "    more = await asyncio.wait_for(llm_query('c'), 30)\n"
        "[t.result() for t in tasks], more"
    )
    assert await repl.show(code) == "(['re:a', 're:b'], 're:c')"


async def test_every_call_function_can_be_awaited(repl: Repl) -> None:
    awaited = {
        "await llm_query('a')": "'re:a'",
        "await llm_query_batched(['a'])": "['re:a']",
        "await rlm_query('a')": "'re:a'",
        "await rlm_query_batched(['a'])": "['re:a']",
        "await map_query('q', ['c'])": r"['re:q\n\n---\nc']",
        "await budget()": "{'calls': 7}",
        "await call_tool('lookup')": "{'name': 'lookup', 'arguments': {}}",
    }
    for code, shown in awaited.items():
        assert (code, await repl.show(code)) == (code, shown)
    repl.host.reply = lambda prompt: "[1]"
    assert await repl.show("await llm_query_json('a')") == "[1]"


async def test_results_of_calls_can_be_awaited_again(repl: Repl) -> None:
    await repl.run("import asyncio, functools")
    codes = {
        "tasks = [llm_query(x) for x in 'ab']\nawait asyncio.gather(*tasks)": "['re:a', 're:b']",
        "r = llm_query('a')\nx = await r\nx, type(x).__name__, r + '!'": "('re:a', 'str', 're:a!')",
        "p = functools.partial(llm_query, 'a')\nawait p()": "'re:a'",
        "r = llm_query_batched(['a'])\nawait asyncio.gather(r)": "[['re:a']]",
        "r = llm_query('a')\nt = asyncio.create_task(r)\nawait t": "'re:a'",
        "await asyncio.to_thread(llm_query, 'a')": "'re:a'",
    }
    for code, shown in codes.items():
        assert (code, await repl.show(code)) == (code, shown)
    assert await repl.show("type(llm_query('a')) is str") == "True"


async def test_the_event_loop_persists_but_does_not_run_in_sync_cells(repl: Repl) -> None:
    await repl.run(
        "import asyncio\nqueue = asyncio.Queue()\ntask = asyncio.create_task(queue.get())"
    )
    assert (await repl.fail("asyncio.get_running_loop()"))[0] == "RuntimeError"
    await repl.show("await asyncio.sleep(0); task = asyncio.create_task(llm_query('kept'))")
    await repl.show("between = 1")
    assert await repl.show("await task") == "'re:kept'"
    assert await repl.show("async def f(): return 5\nasyncio.run(f())") == "5"
    assert await repl.show("await f()") == "5"


async def test_errors_in_async_cells(repl: Repl) -> None:
    assert await repl.fail("await llm_query('refuse')") == ("CallFailed", "over the limit")
    assert (await repl.fail("import asyncio\nawait asyncio.sleep(0)\n1/0"))[
        0
    ] == "ZeroDivisionError"
    assert (await repl.fail("await asyncio.sleep(0)\nraise SystemExit"))[0] == "SystemExit"
    code = (
        "r = await asyncio.gather(llm_query('refuse'), llm_query('a'), return_exceptions=True)\nr"
    )
    assert await repl.show(code) == "[CallFailed('over the limit'), 're:a']"


async def test_threads_that_outlive_their_cell_get_their_answers(repl: Repl) -> None:
    repl.host.hold_until = 2
    await repl.run(
        "import threading\ngot = []\n"
        "t = threading.Thread(target=lambda: got.append(llm_query('late')))\nt.start()"
    )
    assert await repl.show("'between'") == "'between'"
    assert await repl.show("llm_query('second'); t.join(); got") == "['re:late']"


async def test_a_cancelled_call_does_not_disturb_the_next(repl: Repl) -> None:
    repl.host.hold_until = 2
    await repl.run("import asyncio")
    waiting = "await asyncio.wait_for(llm_query('slow'), 0.05)"
    code = f"try: {waiting}\nexcept asyncio.TimeoutError: print('late')"
    assert await repl.show(code) == "late"
    assert await repl.show("llm_query('next')") == "'re:next'"


async def test_concurrent_execute_calls_run_one_after_the_other(repl: Repl) -> None:
    results = await asyncio.gather(*(repl.run(f"x = {n}\nx") for n in range(5)))
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(5)]
