"""The official `openai` package, as its users write it, against `rlm serve`."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pydantic
import pytest

from rlm.testing.fake_server import Answer, FakeServer
from rlm.testing.fake_server.script import Call
from tests.server.command import MODEL, Served, served
from tests.server.serving import LARGE, submits

openai: Any = None
pytestmark = pytest.mark.heavy

TOKEN = "token-of-the-tests"
LOOKS = (
    "```repl\nparts = llm_query_batched(['part one', 'part two'])\nFINAL(' and '.join(parts))\n```"
)
RULES = [
    Answer(when="part one", reply="one"),
    Answer(when="part two", reply="two"),
    Answer(when="join the parts", reply=LOOKS),
    Answer(when="how long is it", reply="```repl\nFINAL(len(context))\n```"),
    Answer(when="name a city", reply=submits({"city": "Paris", "inhabitants": 2_100_000})),
    Answer(when="plain JSON", reply='{"city": "Rome", "inhabitants": 2800000}'),
    Answer(when="the weather", tool_calls=(Call("weather", {"city": "Paris"}),)),
    Answer(when="be overloaded", status=429, retry_after=0),
    Answer(when="repeat the file", reply="```repl\nFINAL(context)\n```"),
    Answer(when="", reply="hello from the model"),
]


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    global openai
    why = "openai is not installed; see make test-server-clients"
    openai = pytest.importorskip("openai", reason=why)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served, None, None]:
    folder = tmp_path_factory.mktemp("server")
    with FakeServer(RULES) as model, served(folder, model, "--token", TOKEN) as server:
        yield server


@pytest.fixture
def client(one: Served) -> Generator[Any, None, None]:
    with openai.OpenAI(base_url=f"{one.base}/v1", api_key=TOKEN, max_retries=0) as made:
        yield made


def _asked(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


class City(pydantic.BaseModel):
    city: str
    inhabitants: int


# -- chat completions -----------------------------------------------------------------------------


def test_a_plain_completion(client: Any) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=_asked("hi"), temperature=0.1)
    assert reply.choices[0].message.content == "hello from the model"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens > 0
    assert reply.rlm["route"] == "direct"


def test_a_large_message(client: Any) -> None:
    text = f"{LARGE}\n\nhow long is it?"
    reply = client.chat.completions.create(model=MODEL, messages=_asked(text))
    assert reply.choices[0].message.content == str(len(text))
    assert reply.rlm["route"] == "rlm"


def test_extra_body_gives_full_control(client: Any) -> None:
    reply = client.chat.completions.create(
        model=MODEL,
        messages=_asked("join the parts"),
        extra_body={"rlm": {"context": ["a", "b"], "limits": {"max_steps": 3}}},
    )
    assert reply.choices[0].message.content == "one and two"
    assert reply.rlm["calls"] == 2


def test_a_stream_with_progress_and_usage(client: Any) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=_asked("join the parts"),
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"rlm": {"context": "x"}},
    )
    chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "one and two"
    thoughts = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert "2 calls" in thoughts
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens > 0


def test_the_stream_helper(client: Any) -> None:
    with client.chat.completions.stream(model=MODEL, messages=_asked("hi")) as stream:
        said = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert said == final.choices[0].message.content == "hello from the model"


def test_parse_gives_typed_answers(client: Any) -> None:
    for route, text in (("rlm", "name a city"), ("direct", "plain JSON")):
        reply = client.chat.completions.parse(
            model=MODEL,
            messages=_asked(text),
            response_format=City,
            extra_body={"rlm": {"route": route}},
        )
        assert isinstance(reply.choices[0].message.parsed, City)


def test_tools_on_the_direct_route(client: Any) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    reply = client.chat.completions.create(
        model=MODEL, messages=_asked("the weather"), tools=[tool]
    )
    [call] = reply.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    with client.chat.completions.stream(
        model=MODEL, messages=_asked("the weather"), tools=[tool]
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather"


async def test_the_async_client(one: Served) -> None:
    async with openai.AsyncOpenAI(base_url=f"{one.base}/v1", api_key=TOKEN) as client:
        reply = await client.chat.completions.create(model=MODEL, messages=_asked("hi"))
        assert reply.choices[0].message.content == "hello from the model"
        stream = await client.chat.completions.create(
            model=MODEL, messages=_asked("hi"), stream=True
        )
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        assert text == "hello from the model"


# -- responses ------------------------------------------------------------------------------------


def test_responses(client: Any) -> None:
    reply = client.responses.create(model=MODEL, input="hi", instructions="be brief")
    assert reply.output_text == "hello from the model"
    assert reply.status == "completed"
    assert reply.usage.total_tokens > 0
    large = client.responses.create(model=MODEL, input=f"{LARGE}\n\nhow long is it?")
    assert large.output_text == str(len(LARGE) + 17)


def test_responses_stream(client: Any) -> None:
    with client.responses.stream(
        model=MODEL, input="join the parts", extra_body={"rlm": {"context": "x"}}
    ) as stream:
        events = list(stream)
        final = stream.get_final_response()
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == final.output_text == "one and two"
    kinds = [item.type for item in final.output]
    assert kinds == ["reasoning", "message"]


def test_responses_parse(client: Any) -> None:
    reply = client.responses.parse(
        model=MODEL,
        input="name a city",
        text_format=City,
        extra_body={"rlm": {"route": "rlm"}},
    )
    assert reply.output_parsed == City(city="Paris", inhabitants=2_100_000)


def test_responses_tools(client: Any) -> None:
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
    reply = client.responses.create(model=MODEL, input="the weather", tools=[tool])
    [call] = [item for item in reply.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Paris"}


# -- files and models -----------------------------------------------------------------------------


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL, MODEL.removeprefix("rlm/")]
    assert client.models.retrieve(MODEL).id == MODEL


def test_files(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("what the file says")
    kept = client.files.create(file=path, purpose="user_data")
    assert kept.bytes == 18
    assert kept.id in [each.id for each in client.files.list()]
    reply = client.chat.completions.create(
        model=MODEL,
        messages=_asked("repeat the file"),
        extra_body={"rlm": {"file_ids": [kept.id]}},
    )
    assert reply.choices[0].message.content == "what the file says"
    part = {"type": "input_file", "file_id": kept.id}
    text = {"type": "input_text", "text": "repeat the file"}
    response = client.responses.create(
        model=MODEL, input=[{"role": "user", "content": [text, part]}]
    )
    assert response.output_text == "what the file says"
    assert client.files.content(kept.id).read() == b"what the file says"
    assert client.files.delete(kept.id).deleted is True
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(kept.id)


# -- errors ---------------------------------------------------------------------------------------


def test_errors_are_its_own_exceptions(one: Served, client: Any) -> None:
    def ask(client: Any = client, **more: Any) -> Any:
        given: dict[str, Any] = {"model": MODEL, "messages": _asked("hi"), **more}
        return client.chat.completions.create(**given)

    with pytest.raises(openai.NotFoundError) as missing:
        ask(model="rlm/nobody")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        ask(extra_body={"rlm": {"limits": {"max_steps": 10_000}}})
    assert bad.value.param == "rlm.limits.max_steps"
    with pytest.raises(openai.BadRequestError):
        ask(n=2)
    with pytest.raises(openai.RateLimitError):
        ask(messages=_asked("be overloaded"), timeout=60)
    with (
        openai.OpenAI(base_url=f"{one.base}/v1", api_key="wrong") as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        ask(stranger)
    with pytest.raises(openai.APIError, match="overloaded"):
        list(ask(messages=_asked("be overloaded"), stream=True))


# -- background runs, which the package does not know --------------------------------------------


def test_background_runs_with_its_plain_requests(client: Any) -> None:
    body = {"model": MODEL, "query": "join the parts", "context": "x"}
    run = client.post("/runs", body=body, cast_to=object)
    while run["status"] in {"queued", "running"}:
        run = client.get(f"/runs/{run['id']}", cast_to=object)
    assert run["answer"] == "one and two"
