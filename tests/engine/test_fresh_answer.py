"""No run of a conversation ends with what an earlier run left in the REPL."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, AgentRLM, Guards, Limits, RunResult, ScriptedClient
from rlm.chat.chat import Chat
from rlm.environments import _forked
from rlm.errors import CallRefused, ModelError
from rlm.events import CellOutput, SessionLost

HANDED_IN = 'answer["content"] = "first"\nanswer["ready"] = True'
ONE_STEP = Limits(max_steps=1)


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def engine(*script: str, **more: Any) -> RLM:
    return RLM(ScriptedClient(script), **more)


async def two_turns(chat: Chat) -> tuple[RunResult, RunResult]:
    first = await chat.aask("First?")
    second = await chat.aask("Second?")
    await chat.aclose()
    return first, second


@pytest.mark.parametrize("environment", ["local", "agent", "inprocess"])
async def test_a_chat_does_not_submit_the_answer_of_the_previous_turn(environment: str) -> None:
    one = engine(
        code(HANDED_IN), code("x = 2"), code("FINAL([x, answer])"), environment=environment
    )
    first, second = await two_turns(one.chat("text"))
    assert (first.answer, first.answer_source) == ("first", "submitted")
    assert second.answer == "[2, {'content': '', 'ready': False}]"
    assert second.steps == 2


async def test_a_persistent_engine_does_not_submit_the_previous_answer() -> None:
    one = engine(code(HANDED_IN), code("x = 2"), code("FINAL(x)"), persistent=True)
    assert (await one.acompletion("text", "First?")).response == "first"
    assert (await one.acompletion("text", "Second?")).response == "2"
    await one.aclose()


async def test_an_agent_does_not_submit_the_previous_answer() -> None:
    script = (code(HANDED_IN), code("x = 2"), code("FINAL(x)"))
    async with AgentRLM(ScriptedClient(script)) as agent:
        first = [piece async for piece in agent.chat("First?")]
        second = [piece async for piece in agent.chat("Second?")]
    assert (first, second) == (["first"], ["2"])


LEFT_BEHIND = {
    "a draft": 'answer["content"] = "first"',
    "a str": 'answer = "first"',
    "a list": 'answer = ["first"]',
    "final_answer": 'final_answer = "first"',
    "final": 'final = "first"',
    "result": 'result = "first"',
    "final_result": 'final_result = "first"',
    "auto_finalize_var": 'mine = "first"',
}


@pytest.mark.parametrize("left", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
async def test_a_value_left_by_one_turn_is_not_the_best_answer_of_the_next(left: str) -> None:
    one = engine(
        code(left),
        code("x = 2"),
        "asked",
        limits=ONE_STEP,
        guards=Guards(auto_finalize_var="mine"),
    )
    first, second = await two_turns(one.chat("text"))
    assert "first" in first.answer
    assert (second.answer, second.answer_source) == ("asked", "asked")


BOUND_ANEW = {
    "to another value": 'result = "second"',
    "to the same object": 'result = "first"',
    "in part": 'result = list(result)\nresult[0] = "second"',
    "by a function": 'def f():\n    global result\n    result = "second"\nf()',
}


@pytest.mark.parametrize("cell", BOUND_ANEW.values(), ids=BOUND_ANEW)
async def test_a_variable_rebound_in_a_turn_may_be_its_answer(cell: str) -> None:
    one = engine(code('result = "first"'), code(cell), limits=ONE_STEP)
    _, second = await two_turns(one.chat("text"))
    assert second.answer_source == "variable"


async def test_a_variable_that_a_turn_only_reads_is_not_its_answer() -> None:
    one = engine(code('result = "first"'), code("print(result)"), "asked", limits=ONE_STEP)
    _, second = await two_turns(one.chat("text"))
    assert (second.answer, second.answer_source) == ("asked", "asked")


async def test_the_model_may_submit_a_variable_of_an_earlier_turn() -> None:
    one = engine(code('result = "first"\nFINAL(1)'), code("FINAL_VAR('result')"))
    _, second = await two_turns(one.chat("text"))
    assert second.answer == "first"


async def _checkpoint_taken(chat: Chat) -> None:
    worker: Any = chat._session and chat._session.worker
    async with asyncio.timeout(60):
        while worker._checkpoint is None or worker._changed:
            await asyncio.sleep(0.01)


async def test_restoring_a_checkpoint_does_not_restore_an_earlier_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = engine(
        code(f'{HANDED_IN}\nresult = "first"'),
        code("import os\nresult = 'second'\nos._exit(1)"),
        code("x = 2"),
        "asked",
        limits=Limits(max_steps=2),
    )
    chat = one.chat("text")
    assert (await chat.aask("First?")).answer == "first"
    await _checkpoint_taken(chat)
    monkeypatch.setattr(_forked, "IDLE_SECONDS", 1000.0)  # the checkpoint stays that of turn 1
    second = await chat.aask("Second?")
    await chat.aclose()
    assert [each.restored for each in second.events if isinstance(each, SessionLost)] == [True]
    assert (second.answer, second.answer_source) == ("asked", "asked")


async def test_a_draft_of_the_current_turn_is_restored_with_its_checkpoint() -> None:
    exits = code("import os\nos._exit(1)")
    replies = iter(
        [
            code(HANDED_IN),
            code('answer["content"] = "draft"\nx = 1'),
            exits,
            code('answer["ready"] = True'),
        ]
    )

    async def model(_: str) -> str:
        reply = next(replies)
        if reply is exits:
            await _checkpoint_taken(chat)
        return reply

    chat = RLM(model).chat("text")
    await chat.aask("First?")
    second = await chat.aask("Second?")
    await chat.aclose()
    assert [each.restored for each in second.events if isinstance(each, SessionLost)] == [True]
    assert second.answer == "draft"


@pytest.mark.parametrize("left", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
async def test_a_loaded_chat_starts_without_an_answer(left: str, tmp_path: Path) -> None:
    guards = Guards(auto_finalize_var="mine")
    chat = engine(code(left), limits=ONE_STEP, guards=guards).chat("text")
    await chat.aask("First?")
    await chat.asave(tmp_path / "kept.chat")
    await chat.aclose()
    one = engine(code("x = 2"), "asked", limits=ONE_STEP, guards=guards)
    loaded = one.chat(load=tmp_path / "kept.chat")
    assert (await loaded.aask("Second?")).answer == "asked"
    await loaded.aclose()


async def test_a_worker_that_dies_between_turns_is_replaced() -> None:
    one = engine(code(f"{HANDED_IN}\nx = 1"), code("y = 2"), code("FINAL(y)"))
    chat = one.chat("text")
    await chat.aask("First?")
    worker: Any = chat._session and chat._session.worker
    worker._drop_checkpoint()
    await worker._end_worker()
    second = await chat.aask("Second?")
    await chat.aclose()
    assert second.answer == "2"


LATE = """
import threading, time
said = []
def later():
    while len(said) < 3:
        time.sleep(0.02)
        try: said.append(tick())
        except Exception as error: said.append(str(error))
threading.Thread(target=later, daemon=True).start()
time.sleep(0.03)
FINAL(1)
"""


async def test_a_thread_left_by_a_turn_can_make_no_calls_between_turns() -> None:
    calls = 0

    def tick() -> int:
        nonlocal calls
        calls += 1
        return calls

    one = engine(code(LATE), code("FINAL(said[-1])"), tools=[tick])
    chat = one.chat("text")
    await chat.aask("First?")
    answered = calls
    await asyncio.sleep(0.3)
    assert calls == answered
    assert (await chat.aask("Second?")).answer == "the run has ended"
    await chat.aclose()
    await one.aclose()


ANSWERING = {
    "FINAL": "FINAL('OLD')",
    "answer": "answer['content'] = 'OLD'\n    answer['ready'] = True",
    "a draft": "answer['content'] = 'OLD'",
    "an answer in one": "globals().update(answer={'content': 'OLD', 'ready': True})",
    "a variable": "globals().update(final_answer='OLD')",
}
THREAD = """
import threading, time
gate, over = threading.Event(), threading.Event()
def late():
    gate.wait()
    {answering}
def go():
    try: late()
    except RuntimeError: pass
    finally: over.set()
threading.Thread(target=go).start()
FINAL('first')
"""
RAW_THREAD = f"import _thread{THREAD}".replace(
    "threading.Thread(target=go).start()", "_thread.start_new_thread(go, ())"
)
TASK = """
import asyncio
gate, over = asyncio.Event(), asyncio.Event()
async def late():
    await gate.wait()
    {answering}
async def go():
    try: await late()
    except RuntimeError: pass
    finally: over.set()
task = asyncio.create_task(go())
await asyncio.sleep(0)
FINAL('first')
"""


@pytest.mark.parametrize("environment", ["local", "agent", "inprocess"])
@pytest.mark.parametrize("answering", ANSWERING.values(), ids=ANSWERING)
@pytest.mark.parametrize(
    ("left", "wait"),
    [
        (THREAD, "gate.set(); over.wait(10)  # no answer yet"),
        (RAW_THREAD, "gate.set(); over.wait(10)  # no answer yet"),
        (TASK, "gate.set(); await over.wait()  # no answer yet"),
    ],
    ids=["thread", "raw thread", "task"],
)
async def test_what_a_turn_left_running_does_not_answer_the_next(
    left: str, wait: str, answering: str, environment: str
) -> None:
    """Neither by submitting, nor at a limit."""
    one = engine(
        code(left.format(answering=answering)),
        code(wait),
        "asked",
        limits=ONE_STEP,
        environment=environment,
    )
    first, second = await two_turns(one.chat("text"))
    assert (first.answer, first.answer_source) == ("first", "submitted")
    assert (second.answer, second.answer_source) == ("asked", "asked")


CALLING = {
    "llm_query": "llm_query('late')",
    "llm_query_batched": "llm_query_batched(['late', 'late'])",
    "rlm_query": "rlm_query('late')",
    "a tool": "tick()",
    "budget": "budget()",
}
LATE_THREAD = """
import threading
gate, over, said = threading.Event(), threading.Event(), []
def late():
    gate.wait()
    try: said.append({calling})
    except RuntimeError as error: said.append(str(error))
    finally: over.set()
threading.Thread(target=late).start()
FINAL('first')
"""
LATE_RAW_THREAD = f"import _thread{LATE_THREAD}".replace(
    "threading.Thread(target=late).start()", "_thread.start_new_thread(late, ())"
)
LATE_TASK = """
import asyncio
gate, over, said = asyncio.Event(), asyncio.Event(), []
async def late():
    await gate.wait()
    try: said.append({calling})
    except RuntimeError as error: said.append(str(error))
    finally: over.set()
task = asyncio.create_task(late())
await asyncio.sleep(0)
FINAL('first')
"""


@pytest.mark.parametrize("environment", ["local", "agent", "inprocess"])
@pytest.mark.parametrize("calling", CALLING.values(), ids=CALLING)
@pytest.mark.parametrize(
    ("left", "wait"),
    [
        (LATE_THREAD, "gate.set(); over.wait(10)"),
        (LATE_RAW_THREAD, "gate.set(); over.wait(10)"),
        (LATE_TASK, "gate.set(); await over.wait()"),
    ],
    ids=["thread", "raw thread", "task"],
)
async def test_what_a_turn_left_running_makes_no_calls_in_the_next(
    left: str, wait: str, calling: str, environment: str
) -> None:
    ticks = []
    one = engine(
        code(left.format(calling=calling)),
        code(f"{wait}\nFINAL(said[0])"),
        environment=environment,
        tools={"tick": lambda: ticks.append(1)},
    )
    _, second = await two_turns(one.chat("text"))
    assert second.answer is not None
    assert "started in an earlier turn" in second.answer
    assert (second.usage.total.requests, ticks) == (1, [])


@pytest.mark.parametrize("environment", ["local", "agent", "inprocess"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("left", "wait"),
    [(THREAD, "gate.set(); done = over.wait(10)"), (TASK, "gate.set(); done = await over.wait()")],
    ids=["thread", "task"],
)
async def test_what_a_turn_left_running_prints_is_not_output_of_the_next(
    left: str, wait: str, stream: str, environment: str
) -> None:
    model = ScriptedClient(
        [
            code(left.format(answering=f"import sys; getattr(sys, '{stream}').write('OLD\\n')")),
            code(f"print('NEW')\n{wait}\nimport sys\nprint('ERR', end='', file=sys.stderr)"),
        ]
    )
    one = RLM(model, limits=ONE_STEP, environment=environment)
    _, second = await two_turns(one.chat("text"))
    printed = {each.stream: each.text for each in second.events if isinstance(each, CellOutput)}
    apart = "\n[printed by threads or tasks of an earlier turn:]\nOLD\n"
    if environment == "inprocess" and left is THREAD:
        apart = ""  # Threads print to the streams of the program.
    assert printed == {"stdout": "NEW\n", "stderr": f"ERR{apart}"}


@pytest.mark.parametrize("environment", ["local", "agent"])
async def test_what_a_turn_left_running_prints_is_not_the_best_answer_of_the_next(
    environment: str,
) -> None:
    """If no last request is answered, the last output is the best there is."""
    model = ScriptedClient(
        [
            code(THREAD.format(answering="print('OLD')")),
            code("gate.set(); done = over.wait(10)"),
            ModelError("away"),
        ]
    )
    one = RLM(model, limits=ONE_STEP, environment=environment)
    _, second = await two_turns(one.chat("text"))
    assert (second.answer, second.answer_source) == (None, "none")


async def test_nor_does_an_agent_pass_on_what_it_streams() -> None:
    left = LATE_THREAD.format(calling="stream_output('late')")
    wait = code("gate.set(); over.wait(10)\nFINAL('second')")
    async with AgentRLM(ScriptedClient([code(left), wait])) as agent:
        first = [piece async for piece in agent.chat("First?")]
        second = [piece async for piece in agent.chat("Second?")]
    assert (first, second) == (["first"], ["second"])


POOL = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
FINAL(pool.submit(llm_query, 'a').result())
"""


@pytest.mark.parametrize("environment", ["local", "inprocess"])
async def test_a_pool_of_an_earlier_turn_works_for_the_turn_that_uses_it(environment: str) -> None:
    again = "pool.submit(FINAL, pool.submit(llm_query, 'b').result()).result()"
    one = engine(code(POOL), "A", code(again), "B", environment=environment)
    first, second = await two_turns(one.chat("text"))
    assert (first.answer, second.answer) == ("A", "B")


async def test_an_old_thread_does_not_answer_through_a_new_pool() -> None:
    left = LATE_THREAD.format(calling="pool.submit(llm_query, 'late').result()")
    new_pool = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)"
    cell = "pool.submit(len, '').result(); gate.set(); over.wait(10)\nFINAL(said[0])"
    one = engine(code(f"{new_pool}\n{left}"), code(f"{new_pool}\n{cell}"))
    _, second = await two_turns(one.chat("text"))
    assert "started in an earlier turn" in str(second.answer)


async def test_no_call_passes_while_the_next_turn_begins() -> None:
    """The worker learns of another turn a little after the host."""
    ticks: list[int] = []
    one = engine(code("FINAL(1)"), code("FINAL(2)"), tools={"tick": lambda: ticks.append(1)})
    chat = one.chat("text")
    await chat.aask("First?")
    session: Any = chat._session
    renew, refusals = session._renew_answer, []

    async def slow() -> None:
        with pytest.raises(CallRefused) as refused:
            await session.answer("tool", {"name": "tick", "arguments": {}}, ())
        refusals.append(str(refused.value))
        await renew()

    session._renew_answer = slow
    assert (await chat.aask("Second?")).answer == "2"
    await chat.aclose()
    assert (refusals, ticks) == (["the run has ended"], [])


async def test_nor_does_it_spoil_the_answer_of_the_turn() -> None:
    left = THREAD.format(answering=ANSWERING["an answer in one"])
    one = engine(
        code(left),
        code("gate.set(); over.wait(10)"),
        code('answer["content"] = "second"; answer["ready"] = True'),
    )
    _, second = await two_turns(one.chat("text"))
    assert (second.answer, second.answer_source) == ("second", "submitted")


@pytest.mark.parametrize(
    "body",
    [
        "answer.update(content=value, ready=True)",
        "global answer; answer = {'content': value, 'ready': True}",
    ],
)
async def test_a_helper_of_an_earlier_turn_may_submit(body: str) -> None:
    helper = f"def done(value):\n    {body}\ndone('first')"
    one = engine(code(helper), code("done('second')"))
    first, second = await two_turns(one.chat("text"))
    assert (first.answer, second.answer) == ("first", "second")
    assert second.answer_source == "submitted"


@pytest.mark.parametrize(
    "binding",
    [
        "globals()['answer'] = {'content': 'second', 'ready': True}",
        "globals().update(answer={'content': 'second', 'ready': True})",
        'exec(\'answer = {"content": "second", "ready": True}\')',
    ],
)
async def test_a_cell_may_bind_the_answer_by_any_means(binding: str) -> None:
    """Also after an earlier turn has awaited something, which may have left tasks."""
    one = engine(code("import asyncio\nawait asyncio.sleep(0)\nFINAL('first')"), code(binding))
    first, second = await two_turns(one.chat("text"))
    assert (first.answer, second.answer) == ("first", "second")


async def test_answer_stays_a_dict_for_cells() -> None:
    look = """
import copy, json, pickle
answer["content"] = "x"
same = [copy.deepcopy(answer), copy.copy(answer), pickle.loads(pickle.dumps(answer)), answer | {}]
FINAL([isinstance(answer, dict), json.dumps(answer), {type(each) for each in same} == {dict}])
"""
    one = engine(code("FINAL(1)"), code(look))
    _, second = await two_turns(one.chat("text"))
    assert second.answer == """[True, '{"content": "x", "ready": false}', True]"""
