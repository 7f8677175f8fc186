"""Answers written as prose arrive piece by piece; code never does; the pieces are the answer."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, AgentRLM, Guards, RLMLogger, ScriptedClient
from rlm.engine.answer_stream import TAKEN_BACK, ProseStream, direct_answer, final_answer
from rlm.events import CallRetried, Event, OutputStreamed, RunEnded
from rlm.messages import Reply, Request
from rlm.testing.fake_server import Answer, FakeServer
from tests.fakes import PlanEnvironment, cell

PROSE = (
    "The lighthouse was built in 1791, and it is still standing.\n\nIts keeper was Ines (twice)."
)
PROSE_REPLIES = [
    f"Final Answer: {PROSE}",
    f"FINAL: {PROSE}",
    f"FINAL({PROSE})",
    f"I have looked at all of it.\n\nFinal Answer: {PROSE}",
]
CODE_REPLIES = [
    "```repl\nprint(len(context))\n```",
    "I will look at it first.\n```python\nx = 1\n```",
    "x = llm_query('Final Answer: is it here?')\nprint(x)",
    "```repl\nFINAL('The lighthouse was built')\n```",
    "```repl\nnote = '''\nFinal Answer: the old one was wrong\n'''\n```",
    "FINAL(len(context))\nprint(context)",
    'answer["content"] = "The old one was wrong"\nanswer["ready"] = True',
    "<think>\nFinal Answer: it may be this one\n</think>\n```repl\nprint(1)\n```",
]


class Told:
    """What a stream tells its readers, and how much of it they are told to forget."""

    def __init__(self, *, after_marker: bool) -> None:
        self.pieces: list[str] = []
        self.taken_back: list[int] = []
        self.stream = ProseStream(
            self.pieces.append, self.taken_back.append, after_marker=after_marker
        )


def told_of(text: str, size: int, *, after_marker: bool) -> Told:
    told = Told(after_marker=after_marker)
    for start in range(0, len(text), size):
        told.stream.send(text[start : start + size])
    told.stream.finish(text)
    return told


def pieces_of(text: str, size: int, *, after_marker: bool) -> list[str]:
    return told_of(text, size, after_marker=after_marker).pieces


# -- one reply ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 4, 1_000])
@pytest.mark.parametrize("reply", PROSE_REPLIES)
def test_a_final_in_prose(reply: str, size: int) -> None:
    told = pieces_of(reply, size, after_marker=True)
    assert "".join(told) == final_answer(reply) == PROSE
    assert len(told) > 10 if size < 10 else told == [PROSE] or len(told) <= 2


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("reply", CODE_REPLIES)
def test_code_is_never_streamed(reply: str, size: int) -> None:
    assert pieces_of(reply, size, after_marker=True) == []


@pytest.mark.parametrize("reply", ["FINAL('a quoted text of words')", "Final Answer: **bold one**"])
def test_an_uncertain_answer_is_streamed_in_one_piece_at_the_end(reply: str) -> None:
    assert pieces_of(reply, 1, after_marker=True) == [final_answer(reply)]


def test_a_final_with_a_bare_name_is_not_streamed_as_it_may_be_a_variable() -> None:
    assert pieces_of("FINAL(rows)", 1, after_marker=True) == []


WORDS = ["The answer is blue", "x = 1", "FINAL(", "Final Answer: ", ")", "```repl\n", "```", "\n"]
WORDS += ["<think>", "</think>", "print(2)", "it's fine ", "FINAL_VAR(x)", "**", "- one two ", '"']
TEXTS = st.lists(st.sampled_from(WORDS), max_size=9).map("".join)


@given(TEXTS, st.integers(1, 9), st.booleans())
def test_streamed_pieces_always_begin_the_answer(text: str, size: int, after_marker: bool) -> None:
    found = told_of(text, size, after_marker=after_marker)
    told = "".join(found.pieces)
    answer = final_answer(text) if after_marker else direct_answer(text)
    assert told in ("", answer) or told in text  # nothing is invented
    assert found.taken_back == ([] if told in ("", answer) else [len(told)])


@pytest.mark.parametrize("size", [1, 5])
def test_a_direct_reply_is_streamed_unless_it_is_code(size: int) -> None:
    told = pieces_of(f"{PROSE}\n", size, after_marker=False)
    assert "".join(told) == PROSE
    assert len(told) > 10
    code = "rows = context.split()\nFINAL(len(rows))"
    assert pieces_of(code, size, after_marker=False) == []


def test_a_reply_that_is_requested_again_is_read_from_its_beginning() -> None:
    told = Told(after_marker=True)
    told.stream.send("Final Ans")
    assert not told.stream.has_begun
    told.stream.restart()
    told.stream.send("Final Answer: all of it is here")
    told.stream.finish("Final Answer: all of it is here")
    assert ("".join(told.pieces), told.taken_back) == ("all of it is here", [])


def test_what_was_passed_on_of_a_reply_that_broke_off_is_taken_back() -> None:
    told = Told(after_marker=True)
    told.stream.send("Final Answer: all of it is here, ")
    told.stream.finish("")
    assert told.taken_back == [len("".join(told.pieces))]


# -- runs -----------------------------------------------------------------------------------------


def engine(server: FakeServer, **options: Any) -> RLM:
    variables = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "none"}
    options.setdefault("environment", PlanEnvironment())
    return RLM("openai/gpt-4o", variables=variables, **options)


def logged(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


async def streamed(one: RLM, **options: Any) -> tuple[list[str], list[Event]]:
    events = [event async for event in one.stream("What?", "a context", **options)]
    return [each.text for each in events if isinstance(each, OutputStreamed)], events


@pytest.mark.parametrize("reply", PROSE_REPLIES)
async def test_a_run_streams_its_last_reply_but_none_of_its_code(reply: str) -> None:
    with FakeServer([cell(["print", "Final Answer: not this one"]), reply]) as server:
        async with engine(server) as one:
            told, events = await streamed(one)
        asked = [each.asked.body for each in server.requests if each.asked]
    assert isinstance(events[-1], RunEnded)
    assert "".join(told) == events[-1].answer == PROSE
    assert len(told) > 3
    assert [body.get("stream") for body in asked] == [True, True]
    assert {each.step for each in events if isinstance(each, OutputStreamed)} == {2}


async def test_a_direct_run_streams_its_reply() -> None:
    with FakeServer([PROSE]) as server:
        async with engine(server, strategy="direct") as one:
            told, events = await streamed(one)
    assert isinstance(events[-1], RunEnded)
    assert "".join(told) == events[-1].answer == PROSE
    assert len(told) > 3


async def test_answers_submitted_by_cells_are_not_streamed() -> None:
    with FakeServer([cell(["final", PROSE])]) as server:
        async with engine(server) as one:
            told, _ = await streamed(one)
    assert told == []


@pytest.mark.parametrize(
    "options",
    [
        {"guards": Guards(require_repl_before_final=True)},
        {"guards": Guards(min_steps=2)},
    ],
)
async def test_an_answer_that_a_guard_rejects_is_not_streamed(options: dict[str, Any]) -> None:
    script = ["Final Answer: a guess of mine", cell(["print", 1]), PROSE_REPLIES[0]]
    with FakeServer(script) as server:
        async with engine(server, **options) as one:
            told, _ = await streamed(one)
    assert "guess" not in "".join(told)


async def test_a_typed_answer_is_not_streamed_before_it_is_checked() -> None:
    with FakeServer(["Final Answer: not a number", "FINAL(3)"]) as server:
        async with engine(server) as one:
            told, _ = await streamed(one, response_model=int)
    assert told == []


async def test_without_a_listener_nothing_is_streamed_or_logged_in_pieces(
    tmp_path: Path,
) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    with FakeServer([PROSE_REPLIES[0]] * 2) as server:
        async with engine(server, logger=logger) as one:
            result = await one.aask("What?", "a context")
            await streamed(one)
        asked = [each.asked.body for each in server.requests if each.asked]
    assert ["stream" in body for body in asked] == [False, True]
    assert not any(isinstance(each, OutputStreamed) for each in result.events)
    assert not any("output_streamed" in text for text in logged(tmp_path))


async def test_code_cut_off_by_a_lost_connection_is_requested_again() -> None:
    broken = Answer(reply=cell(["print", 1]), behaviour="cut")
    with FakeServer([broken, PROSE_REPLIES[0]]) as server:
        async with engine(server) as one:
            told, events = await streamed(one)
        assert server.count == 2
    assert [type(each) for each in events].count(CallRetried) == 1
    assert isinstance(events[-1], RunEnded)
    assert "".join(told) == events[-1].answer == PROSE


async def test_an_agent_streams_prose_and_its_pieces_are_the_answer() -> None:
    with FakeServer([PROSE_REPLIES[1], cell(["final", "short"])]) as server:
        kwargs = {"model_name": "gpt-4o", "base_url": server.openai_url, "api_key": "none"}
        agent = AgentRLM("openai", kwargs, environment=PlanEnvironment())
        async with agent:
            chunks = [chunk async for chunk in agent.chat("Tell me.")]
            assert agent.last_result is not None
            assert "".join(chunks) == agent.last_result.answer == PROSE
            assert len(chunks) > 3
            assert [chunk async for chunk in agent.chat("And?")] == ["short"]
        said = [each["content"] for each in agent.get_conversation_history()]
    assert said == ["Tell me.", PROSE, "And?", "short"]


NOT_THE_ANSWER = {
    "code below it that fails": [
        "Final Answer: It was built in 1800.\n\nLet me check.\n```repl\n1 / 0\n```",
        "Final Answer: It was built in 1791.",
    ],
    "code below it that submits": [
        "FINAL(It was built in 1800)\n```repl\nFINAL('It was built in 1791.')\n```"
    ],
    "a second final": [
        "Final Answer: It was built in 1800.\n\nNo.\n\nFinal Answer: It was built in 1791."
    ],
    "a thought without its opening tag": [
        "Final Answer: It may be 1800.\n</think>\nFinal Answer: It was built in 1791."
    ],
}


@pytest.mark.parametrize("script", NOT_THE_ANSWER.values(), ids=NOT_THE_ANSWER)
@pytest.mark.parametrize("streams", [True, False])
async def test_an_agent_does_not_answer_with_prose_that_was_not_the_answer(
    script: list[str], streams: bool
) -> None:
    async with AgentRLM(ScriptedClient(script)) as agent:
        chunks = [chunk async for chunk in agent.chat("When?", stream=streams)]
        assert agent.last_result is not None
        assert agent.last_result.answer == "It was built in 1791."
        assert agent.context.turns()[-1]["answer"] == "It was built in 1791."
    shown, note, rest = "".join(chunks).partition(TAKEN_BACK)
    if streams:
        assert ("1800" in shown, bool(note), rest) == (True, True, "It was built in 1791.")
    else:
        assert chunks == ["It was built in 1791."]


async def test_a_stream_says_how_much_of_it_is_not_the_answer() -> None:
    one = RLM(ScriptedClient(NOT_THE_ANSWER["code below it that fails"]))
    told, events = await streamed(one)
    await one.aclose()
    pieces = [each for each in events if isinstance(each, OutputStreamed)]
    (place,) = (i for i, each in enumerate(pieces) if each.taken_back_chars)
    assert sum(len(each.text) for each in pieces[:place]) == pieces[place].taken_back_chars
    assert isinstance(events[-1], RunEnded)
    assert "".join(told[place + 1 :]) == events[-1].answer == "It was built in 1791."


class Slow(ScriptedClient):
    """Sends the second reply one word at a time, and never ends it."""

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncGenerator[str | Reply, None]:
        if not self.requests:
            async for piece in super().stream(request, timeout_seconds=timeout_seconds):
                yield piece
            return
        for word in ["Final", "Answer:", "what", "is", "being", "written", "is", "long"]:
            yield f"{word} "
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()


async def test_what_was_passed_on_of_a_stopped_reply_is_taken_back() -> None:
    one = RLM(Slow(["```repl\nfinal_answer = 'kept'\n```"]))
    pieces: list[OutputStreamed] = []
    async for event in one.stream("q", "c"):
        if isinstance(event, OutputStreamed):
            pieces.append(event)
            one.stop()
        elif isinstance(event, RunEnded):
            ended = event
    await one.aclose()
    assert ended.answer == "kept"
    *told, last = pieces
    assert sum(len(each.text) for each in told) == last.taken_back_chars > 0


async def test_a_thought_of_a_direct_run_without_its_opening_tag_is_taken_back() -> None:
    script = ["The user asks for a year.\n</think>\nIt was built in 1791."]
    one = RLM(ScriptedClient(script), strategy="direct")
    told, events = await streamed(one)
    await one.aclose()
    assert isinstance(events[-1], RunEnded)
    assert events[-1].answer == "It was built in 1791."
    assert told[-1] == TAKEN_BACK
