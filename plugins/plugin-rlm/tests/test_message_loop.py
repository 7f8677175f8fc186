"""elizaOS's own message loop on its real runtime: a long prompt, three codes to echo, XML."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from elizaos import AgentRuntime
from elizaos.runtime import DynamicPromptOptions
from elizaos.services.message_service import MessageProcessingResult
from elizaos.types.agent import Character
from elizaos.types.components import Provider, ProviderResult
from elizaos.types.memory import Memory
from elizaos.types.plugin import Plugin
from elizaos.types.primitives import Content, string_to_uuid
from elizaos.types.state import SchemaRow, State, StateData

from elizaos_plugin_rlm import plugin
from models import cell

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")
from rlm.testing.fake_server import Asked, FakeServer

CODES = re.compile(r"^(initial|middle|end) code: ([0-9a-f-]{36})$", re.MULTILINE)
PORTS = ["Dover"] * 20_000
PORTS[7_777] = "Brest"
FERRIES = "\n".join(
    f"ferry {number:05d} to {port} leaves at {number % 24:02d}:30"
    for number, port in enumerate(PORTS)
)


def response(codes: dict[str, str], text: str) -> str:
    """Return a response in the form that elizaOS parses."""
    echoed = "".join(f"<one_{name}_code>{code}</one_{name}_code>" for name, code in codes.items())
    said = f"<thought>I looked it up.</thought><actions>REPLY</actions><text>{text}</text>"
    return f"<response>{echoed}{said}</response>"


@pytest.fixture
def received() -> list[str]:
    return []


@pytest.fixture
def model() -> Any:
    """The behaviour of the model behind the server; tests replace it."""
    return {}


@pytest.fixture
def server(
    monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], received: list[str]
) -> Iterator[FakeServer]:
    def answer(asked: Asked) -> str:
        received.append(asked.text)
        return str(model["answer"](asked.text))

    with FakeServer(rules=[("", answer)]) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        yield server


async def timetable(runtime: Any, message: Any, state: Any) -> ProviderResult:
    return ProviderResult(text=f"# Timetable\n{FERRIES}\n# Asked: {message.content.text}")


HARBOUR = Plugin(
    name="harbour",
    description="what a harbour knows",
    providers=[Provider(name="TIMETABLE", description="all ferries", get=timetable)],
)


@pytest.fixture
async def agent(server: FakeServer) -> AsyncIterator[Any]:
    started: list[AgentRuntime] = []

    async def make(*more: Plugin) -> AgentRuntime:
        runtime = AgentRuntime(
            character=Character(name="Ada", bio=["keeps the harbour"], system="You are Ada."),
            plugins=[*more, plugin],
            settings={"ELIZA_RLM_BACKEND": "openai"},
            check_should_respond=False,
        )
        await runtime.initialize()
        started.append(runtime)
        return runtime

    yield make
    for runtime in started:
        await runtime.stop()


async def tell(runtime: AgentRuntime, text: str) -> MessageProcessingResult:
    message = Memory(
        id=string_to_uuid("message"),
        entity_id=string_to_uuid("somebody"),
        room_id=string_to_uuid("harbour"),
        content=Content(text=text),
    )
    result = await runtime.message_service.handle_message(runtime, message)
    assert isinstance(result, MessageProcessingResult)
    return result


async def test_the_agent_answers_a_message(
    agent: Any, model: dict[str, Any], received: list[str]
) -> None:
    """The model reads elizaOS's prompt and echoes its three codes."""

    def reads_then_answers(text: str) -> str:
        codes = dict(CODES.findall(text))
        if not codes:
            return cell("print(context)")
        return cell(f"FINAL({response(codes, 'The ferry leaves at nine.')!r})")

    model["answer"] = reads_then_answers
    result = await tell(await agent(), "When does the ferry leave?")
    assert result.did_respond
    assert result.response_content is not None
    assert result.response_content.text == "The ferry leaves at nine."
    assert list(result.response_content.actions) == ["REPLY"]
    assert len(received) == 2
    assert not CODES.search(received[0]), "nothing of the prompt is sent before code prints it"
    assert len(CODES.findall(received[1])) == 3


async def test_a_prompt_larger_than_any_window_is_answered_by_code(
    agent: Any, model: dict[str, Any], received: list[str]
) -> None:
    """With a timetable of a megabyte, the model sees little and costs little."""
    code = """
import re
codes = dict(re.findall(r"^(initial|middle|end) code: (\\S+)$", context, re.M))
asked = re.search(r"# Asked: .*ferry to (\\w+)", context).group(1)
leaves = re.search(rf"ferry \\d+ to {asked} leaves at (\\S+)", context).group(1)
echoed = "".join(f"<one_{n}_code>{c}</one_{n}_code>" for n, c in codes.items())
said = f"<thought>grep</thought><actions>REPLY</actions><text>At {leaves}.</text>"
FINAL(f"<response>{echoed}{said}</response>")
"""
    model["answer"] = lambda _: cell(code)
    result = await tell(await agent(HARBOUR), "When does the ferry to Brest leave?")
    assert result.did_respond
    assert result.response_content is not None
    assert result.response_content.text == "At 01:30."
    assert len(FERRIES) > 700_000
    assert len(received) == 1
    assert len(received[0]) < 6_000


async def test_core_streams_the_text_of_an_answer_and_checks_its_codes(
    agent: Any, model: dict[str, Any]
) -> None:
    def reads_then_answers(text: str) -> str:
        codes = dict(CODES.findall(text))
        return cell(f"FINAL({response(codes, 'At nine.')!r})") if codes else cell("print(context)")

    model["answer"] = reads_then_answers
    runtime = await agent()
    shown: list[str] = []
    parsed = await runtime.dynamic_prompt_exec_from_state(
        State(values={}, data=StateData(), text=""),
        "When does the ferry leave?",
        [SchemaRow(field="text", description="what to say", stream_field=True)],
        DynamicPromptOptions(
            model="TEXT_LARGE", on_stream_chunk=lambda piece, _: shown.append(piece)
        ),
    )
    assert parsed is not None
    assert parsed["text"] == "At nine."
    assert "".join(shown) == "At nine."


async def test_a_wrong_echo_is_requested_again_by_elizaos(
    agent: Any, model: dict[str, Any], received: list[str]
) -> None:
    wrong = {"initial": "a", "middle": "b", "end": "c"}

    def wrong_at_first(text: str) -> str:
        if len(received) == 1:
            return cell(f"FINAL({response(wrong, 'wrong')!r})")
        codes = dict(CODES.findall(text))
        return cell(f"FINAL({response(codes, 'right')!r})") if codes else cell("print(context)")

    model["answer"] = wrong_at_first
    result = await tell(await agent(), "Hello?")
    assert result.response_content is not None
    assert result.response_content.text == "right"


async def test_a_failing_engine_leaves_the_message_loop_running_without_an_answer(
    agent: Any, model: dict[str, Any]
) -> None:
    model["answer"] = lambda _: "I would rather not."
    runtime = await agent()
    runtime.set_setting("ELIZA_RLM_MAX_ITERATIONS", "1")
    assert not (await tell(runtime, "Hello?")).did_respond
