"""What a cell prints in a turn is its output, also in threads and contexts of an earlier turn."""

import pytest

from rlm import RLM, Guards, ScriptedClient
from rlm.events import CellOutput
from rlm.results import RunResult

FREE = Guards(confirm_final=False, check_values=False)
APART = "[printed by threads or tasks of an earlier turn:]\n"


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


async def second_turn(first: str, second: str, environment: str) -> RunResult:
    """Return the result of a turn whose only cell is `second`."""
    model = ScriptedClient([code(f"{first}\nFINAL(1)"), code(f"{second}\nFINAL(2)")])
    async with RLM(model, guards=FREE, environment=environment) as one:
        chat = one.chat("text")
        await chat.aask("First?")
        return await chat.aask("Second?")


def printed(result: RunResult) -> dict[str, str]:
    return {each.stream: each.text for each in result.events if isinstance(each, CellOutput)}


COPIED = "import asyncio, contextvars\ncopied = contextvars.copy_context()"
IN_A_COPIED_CONTEXT = {
    "in a cell": (COPIED, "copied.run(print, 'NEW')"),
    "in a cell that awaits": (COPIED, "await asyncio.sleep(0)\ncopied.run(print, 'NEW')"),
    "in a cell on a loop": (f"{COPIED}\nawait asyncio.sleep(0)", "copied.run(print, 'NEW')"),
    "a generator's": (
        f"{COPIED}\ndef lines():\n    while True:\n        print('NEW'); yield\nline = lines()",
        "copied.run(next, line)",
    ),
}


@pytest.mark.parametrize("environment", ["local", "inprocess"])
@pytest.mark.parametrize(("first", "second"), IN_A_COPIED_CONTEXT.values(), ids=IN_A_COPIED_CONTEXT)
async def test_what_a_cell_prints_in_a_context_of_an_earlier_turn_is_its_output(
    first: str, second: str, environment: str
) -> None:
    assert printed(await second_turn(first, second, environment)) == {"stdout": "NEW\n"}


async def test_nor_is_it_lost_in_a_thread_of_the_new_turn() -> None:
    second = (
        "import threading\nthread = threading.Thread(target=copied.run, args=(print, 'NEW'))\n"
        "thread.start(); thread.join()"
    )
    assert printed(await second_turn(COPIED, second, "local")) == {"stdout": "NEW\n"}


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_a_cell_answers_and_calls_in_a_context_of_an_earlier_turn(environment: str) -> None:
    model = ScriptedClient(
        [code(f"{COPIED}\nFINAL(1)"), code("copied.run(FINAL, copied.run(llm_query, 'b'))"), "B"]
    )
    async with RLM(model, guards=FREE, environment=environment) as one:
        chat = one.chat("text")
        await chat.aask("First?")
        assert (await chat.aask("Second?")).answer == "B"


TASKS = """
import asyncio
gate, over = asyncio.Event(), asyncio.Event()
async def late():
    await gate.wait()
    print('TASK')
    asyncio.get_running_loop().call_soon(called)
def called():
    print('CALLBACK')
    over.set()
task = asyncio.create_task(late())
await asyncio.sleep(0)
"""


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_tasks_and_callbacks_of_an_earlier_turn_are_known_in_the_thread_of_a_cell(
    environment: str,
) -> None:
    second = "print('BEFORE')\ngate.set(); done = await over.wait()\nprint('AFTER')"
    assert printed(await second_turn(TASKS, second, environment)) == {
        "stdout": "BEFORE\nAFTER\n",
        "stderr": f"{APART}TASK\nCALLBACK\n",
    }


POOL = """
import threading
from concurrent.futures import ThreadPoolExecutor
called = threading.Event()
def note(future):
    print(future.result())
    called.set()
pool = ThreadPoolExecutor(1)
pool.submit(int).result()
"""
FOLLOWED = """
gate = threading.Event()
future = pool.submit(lambda: gate.wait() and 'NEW')
future.add_done_callback(note)
gate.set()
done = called.wait(10)
"""


async def test_what_a_pool_of_an_earlier_turn_calls_when_work_is_done_prints_as_its_submitter() -> (
    None
):
    assert printed(await second_turn(POOL, FOLLOWED, "local")) == {"stdout": "NEW\n"}


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_what_a_pool_calls_when_work_is_done_may_answer(environment: str) -> None:
    answering = FOLLOWED.replace("(note)", "(lambda f: (FINAL(f.result()), called.set()))")
    model = ScriptedClient([code(f"{POOL}\nFINAL(1)"), code(answering)])
    async with RLM(model, guards=FREE, environment=environment) as one:
        chat = one.chat("text")
        await chat.aask("First?")
        assert (await chat.aask("Second?")).answer == "NEW"


async def test_what_an_earlier_turn_submitted_to_a_pool_is_still_its_own() -> None:
    first = (
        f"{POOL}gate = threading.Event()\nold = pool.submit(lambda: gate.wait() and print('OLD'))"
    )
    second = "gate.set(); old.result()\npool.submit(print, 'NEW').result()"
    assert printed(await second_turn(first, second, "local")) == {
        "stdout": "NEW\n",
        "stderr": f"{APART}OLD\n",
    }


WORKER = """
import contextvars, queue, threading
tasks = queue.Queue()
def work():
    while True:
        print(tasks.get())
        tasks.task_done()
threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True).start()
"""
LISTENER = """
import logging, logging.handlers, queue, sys
records, log = queue.Queue(), logging.getLogger('cells')
log.setLevel('INFO')
log.addHandler(logging.handlers.QueueHandler(records))
to_stdout = logging.StreamHandler(sys.stdout)
listener = logging.handlers.QueueListener(records, to_stdout)
listener.start()
"""
LEFT_RUNNING = {
    "a worker with a queue": (WORKER, "print('NEW'); tasks.put('DONE'); tasks.join()", "local"),
    "one in this process": (WORKER, "print('NEW'); tasks.put('DONE'); tasks.join()", "inprocess"),
    "a listener of logs": (LISTENER, "print('NEW'); log.info('DONE'); listener.stop()", "local"),
}


@pytest.mark.parametrize(
    ("first", "second", "environment"), LEFT_RUNNING.values(), ids=LEFT_RUNNING
)
async def test_what_a_thread_of_an_earlier_turn_prints_is_shown_apart(
    first: str, second: str, environment: str
) -> None:
    """Even what this turn asked it to print: a thread of that turn could do so by itself."""
    assert printed(await second_turn(first, second, environment)) == {
        "stdout": "NEW\n",
        "stderr": f"{APART}DONE\n",
    }


async def test_little_of_it_is_kept_both_ends_and_none_is_taken_for_output() -> None:
    long = "print('NEW'); tasks.put('a' * 1_000_000 + 'z'); tasks.join()"
    result = await second_turn(WORKER, long, "local")
    assert printed(result)["stdout"] == "NEW\n"
    apart = printed(result)["stderr"]
    assert apart.startswith(f"{APART}aaa")
    assert apart.endswith("az\n")
    assert len(apart) < 2_200
