"""Bodies with many values are decoded in another process, with the same result as in this one."""

import asyncio
import io
import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from rlm._util import slow_numbers
from rlm.context import EncodedJson, store_context, store_encoded
from rlm.server import bodies, conversation, decoding
from rlm.server.body_worker import read
from rlm.server.errors import ApiError
from rlm.server.requests import AssistantCall, ChatRequest
from rlm.testing.scripted import ScriptedClient
from tests.server.serving import WITH_REPL, Answer, Client, server
from tests.server.test_files import _upload

MANY = 60_000
JSON = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=20,
)
CONTEXTS = (
    some.lists(JSON, min_size=1)
    | some.dictionaries(some.text(), JSON, min_size=1)
    | some.lists(some.text(), min_size=1)
    | some.dictionaries(some.text(), some.text(), min_size=1)
)


def _asked(context: Any, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": WITH_REPL, "messages": messages, "rlm": {"context": context}, **more}


def _encoded(context: Any) -> EncodedJson:
    line, _, text = read(json.dumps(_asked(context)).encode(), "ChatRequest").partition("\n")
    facts = json.loads(line)
    return EncodedJson(text, facts["description"], facts["are_texts"])


def _documents(stored: Any) -> Any:
    found = stored.documents_in_order()
    return None if found is None else [(name, "".join(pieces)) for name, pieces in found]


@given(CONTEXTS)
def test_a_context_decoded_in_another_process_is_stored_identically(context: Any) -> None:
    here, elsewhere = store_context(context), store_encoded(_encoded(context), {})
    assert elsewhere.data == here.data
    assert elsewhere.kind == here.kind
    assert elsewhere.description == here.description
    assert _documents(elsewhere) == _documents(here)


@given(CONTEXTS, some.dictionaries(some.text(min_size=1), JSON, min_size=1))
def test_such_a_context_is_stored_beside_other_contexts(
    context: Any, beside: dict[str, Any]
) -> None:
    beside.pop("context", None)
    here = store_context({"context": context, **beside} if beside else context)
    elsewhere = store_encoded(_encoded(context), beside)
    assert json.loads(elsewhere.data) == json.loads(here.data)
    assert elsewhere.description == here.description


@given(some.binary())
def test_bytes_that_are_not_a_request_get_a_reason(body: bytes) -> None:
    facts = json.loads(read(body, "RunRequest"))
    assert facts.keys() <= {"mistake", "invalid"}


def test_a_request_is_returned_without_its_context() -> None:
    asked = _asked([1, {"a": 2.0}], seed=2.0, stop=["x"], temperature=1)
    facts = json.loads(read(json.dumps(asked).encode(), "ChatRequest").partition("\n")[0])
    request = json.loads(facts["request"])
    assert request["rlm"]["context"] is None
    assert (request["seed"], request["stop"], request["temperature"]) == (2, ["x"], 1.0)


async def _send(client: Client, body: Any, path: str = "/v1/chat/completions") -> Answer:
    headers = {"Content-Type": "application/json"}
    return await client.ask(
        "POST", path, data=io.BytesIO(json.dumps(body).encode()), headers=headers
    )


COUNTS = "```repl\nFINAL(str((type(context).__name__, len(context))))\n```"


@pytest.fixture
def decoded_here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the sizes of what is decoded in this process."""
    sizes: list[int] = []
    decode = decoding.decode

    def recording(body: Any, kind: Any) -> Any:
        sizes.append(len(body))
        return decode(body, kind)

    monkeypatch.setattr("rlm.server.bodies.decode", recording)
    return sizes


@pytest.mark.parametrize(
    ("context", "is_decoded_here"),
    [
        ([[]] * MANY, False),
        ([{"a": 1}] * MANY, False),
        ({f"k{n}": [n] for n in range(MANY)}, False),
        (["x"] * MANY, False),
        (["[1,2]," * 20_000] * 3, True),
        ("[]," * MANY, True),
    ],
    ids=["lists", "dicts", "a dict", "short texts", "long texts", "one text"],
)
async def test_bodies_with_many_values_are_decoded_in_another_process(
    tmp_path: Path, context: Any, is_decoded_here: bool, decoded_here: list[int]
) -> None:
    async with server(tmp_path, ScriptedClient(rules=[("", COUNTS)])) as client:
        chat = await _send(client, _asked(context))
        started = await _send(
            client, {"model": WITH_REPL, "query": "hi", "context": context}, "/v1/runs"
        )
        assert chat.status == 200, chat.text
        wanted = str((type(context).__name__, len(context)))
        assert chat.json["choices"][0]["message"]["content"] == wanted
        assert started.status == 202, started.text
        async with asyncio.timeout(60):
            while (run := await client.get(f"/v1/runs/{started.json['id']}")).json["status"] in (
                "queued",
                "running",
                "in_progress",
            ):
                await asyncio.sleep(0.05)
        assert wanted in run.text
        assert client.service.bodies.memory.used == 0
    assert (max(decoded_here) > 100_000) == is_decoded_here


async def test_files_and_a_context_of_many_values_can_be_combined(tmp_path: Path) -> None:
    reply = "```repl\nFINAL(str((sorted(context), len(context['context']))))\n```"
    async with server(tmp_path, ScriptedClient(rules=[("", reply)])) as client:
        identity = (await _upload(client, b"some text")).json["id"]
        asked = _asked([[]] * MANY)
        asked["rlm"]["file_ids"] = [identity]
        answer = await _send(client, asked)
    assert answer.json["choices"][0]["message"]["content"] == str((["context", "files"], MANY))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({**_asked([[]] * MANY), "temperature": "hot"}, 400, "temperature"),
        ({**_asked(None), "messages": [{"role": "user", "content": []}] * 20_000}, 400, "messages"),
        (
            {**_asked(None), "tool_choice": {str(n): {} for n in range(4 * MANY)}},
            400,
            "too many values",
        ),
    ],
    ids=["a wrong field", "too many messages", "values besides the context"],
)
async def test_errors_are_the_same_as_for_a_small_body(
    tmp_path: Path, body: Any, status: int, words: str
) -> None:
    async with server(tmp_path) as client:
        answer = await _send(client, body)
        assert answer.status == status
        assert words in answer.json["error"]["message"]
        assert client.service.bodies.memory.used == client.service.admission.running == 0


async def test_a_body_that_takes_too_long_to_decode_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_DECODING_SECONDS", 0.0001)
    async with server(tmp_path) as client:
        answer = await _send(client, _asked([[]] * MANY))
        assert answer.status == 413
        assert "/v1/files" in answer.json["error"]["message"]
        assert client.service.bodies.memory.used == client.service.admission.running == 0


@pytest.mark.parametrize("parts", [False, True], ids=["text", "parts"])
def test_ten_thousand_messages_are_read(parts: bool) -> None:
    content: Any = [{"type": "text", "text": "hello"}] if parts else "hello"
    asked = {"model": "m", "messages": [{"role": "user", "content": content}] * 10_000}
    facts = json.loads(read(json.dumps(asked).encode(), "ChatRequest").partition("\n")[0])
    assert len(json.loads(facts["request"])["messages"]) == 10_000


async def test_too_many_values_are_not_called_invalid_json(tmp_path: Path) -> None:
    content = [{"type": "text", "text": ""}] * 500_000
    body = {"model": "rlm/m", "messages": [{"role": "user", "content": content}]}
    async with server(tmp_path) as client:
        answer = await _send(client, body)
    assert answer.status == 400
    assert "too many values" in answer.json["error"]["message"]
    assert "JSON" not in answer.json["error"]["message"]


def test_deep_nesting_is_refused() -> None:
    body = b'{"model":"m","query":"q","context":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    facts = json.loads(read(body, "RunRequest"))
    assert "invalid" in facts or "mistake" in facts
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        msgspec.json.decode(body)


def test_only_fields_for_whole_numbers_become_whole() -> None:
    """The context of a request is the user's: its 1.0 stays 1.0, whatever else needs a 2."""
    context = [1.0, {"a": 1e22, "seed": 3.0}, [2.0]]
    asked = _asked(context, seed=2.0, temperature=1.0, metadata={"a": "1"})
    asked["rlm"]["limits"] = {"max_steps": 4.0, "max_cost_usd": 2.0}
    asked["messages"][0]["content"] = [{"type": "text", "text": "hi"}]
    request: Any = decoding.decode(json.dumps(asked).encode(), ChatRequest)
    assert repr(request.rlm.context) == repr(context)
    assert repr(request.rlm.limits.max_steps) == "4"
    assert repr(request.rlm.limits.max_cost_usd) == "2.0"
    assert repr((request.seed, request.temperature)) == "(2, 1.0)"


@pytest.mark.parametrize("field", ["max_steps", "max_depth"])
def test_a_number_that_is_not_whole_is_still_a_mistake(field: str) -> None:
    body = json.dumps({**_asked([1.0]), "rlm": {"limits": {field: 2.5}}}).encode()
    with pytest.raises(msgspec.ValidationError, match=f"got `float` - at `.*{field}"):
        decoding.decode(body, ChatRequest)


ASKED = '{"model": "m", "messages": [{"role": "user", "content": "q"}], '
SLOW_BODIES = [
    ASKED + '"rlm": {"context": [' + "1e300," * 9_000 + "1]}}",
    ASKED + '"temperature": 4.9e-324,' * 2_500 + '"seed": 2}',
    ASKED + '"seed": 2.0, "rlm": {"context": [' + "1e300," * 9_000 + "1]}}",
]


@pytest.mark.parametrize("text", SLOW_BODIES, ids=["context", "duplicates", "whole number"])
async def test_a_small_body_of_slow_numbers_is_read_in_a_thread_and_not_by_msgspec(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 KB of 1e300 held the server's loop for half a second, twice if a 2.0 was among them."""
    on_loop: list[bool] = []
    read = slow_numbers.loads

    def watched(*given: Any, **named: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return read(*given, **named)

    def never(*given: Any, **named: Any) -> Any:
        raise AssertionError("msgspec would take very long")

    monkeypatch.setattr(slow_numbers, "loads", watched)
    monkeypatch.setattr(msgspec.json, "decode", never)
    request = await bodies._decode_small(text.encode(), ChatRequest)
    assert request.model == "m"
    assert on_loop
    assert not any(on_loop)


def test_arguments_of_a_call_are_bounded() -> None:
    """They are JSON in a string, whose values weigh nothing in the body."""
    for arguments in (b"[]," * 30_000, b"1e300," * 15_000):
        function = {"name": "f", "arguments": f'{{"a": [{arguments.decode()}1]}}'}
        call = {"id": "1", "type": "function", "function": function}
        with pytest.raises(ApiError, match="must be a JSON object"):
            conversation._call(msgspec.convert(call, AssistantCall), "messages[0]")
