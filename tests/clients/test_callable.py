"""A plain function as a model: what it is given, what it may return, and how it is waited for."""

import asyncio
import contextlib
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients.callable import CallableClient
from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ModelInfo, Price, Reply, Request, ToolSpec, Usage
from rlm.protocols import Client
from tests.clients.misbehaving import asked, completion

CHAT = (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Yes?"))
TOOL = ToolSpec(name="look", description="Looks.", parameters={"type": "object"})


async def replied(function: Callable[..., Any], request: Request | None = None) -> Reply:
    client: Client = CallableClient(function)
    return await client.complete(request or asked("hi"), timeout_seconds=5)


# -- what a function is given ---------------------------------------------------------------------


async def test_a_single_message_is_passed_as_its_text() -> None:
    assert (await replied(lambda prompt: prompt.upper())).text == "HI"


async def test_several_messages_are_joined_under_their_roles() -> None:
    reply = await replied(lambda prompt: prompt, asked(messages=CHAT))
    assert reply.text == "[system]\nBe brief.\n\n[user]\nHi\n\n[assistant]\nYes?"


async def test_the_first_parameter_decides_what_is_passed() -> None:
    seen: list[Any] = []

    def by_name(messages):  # type: ignore[no-untyped-def]
        seen.append(messages)
        return ""

    def by_list(turns: list[dict[str, Any]]) -> str:
        seen.append(turns)
        return ""

    def by_sequence(turns: Sequence[Any]) -> str:
        seen.append(turns)
        return ""

    def whole(asked_for: Request) -> str:
        seen.append(asked_for)
        return ""

    def text_of_that_name(messages: str) -> str:
        seen.append(messages)
        return ""

    for function in (by_name, by_list, by_sequence, whole, text_of_that_name):
        await replied(function)
    assert seen[:3] == [[{"role": "user", "content": "hi"}]] * 3
    assert seen[3:] == [asked("hi"), "hi"]


async def test_further_parameters_are_filled_by_name() -> None:
    def function(
        prompt: str,
        *,
        model: str,
        max_output_tokens: int,
        temperature: float,
        own: int = 3,
    ) -> str:
        return f"{model} {max_output_tokens} {temperature} {own}"

    request = asked(sampling={"temperature": 0.5}, tools=(TOOL,))
    assert (await replied(function, request)).text == "m-1 50 0.5 3"
    assert (await replied(lambda prompt, tools, **_: str(len(tools)), request)).text == "1"
    reply = await replied(lambda prompt, **settings: str(settings), request)
    assert reply.text == "{'temperature': 0.5}"


async def test_a_function_that_accepts_the_time_limit_gets_it() -> None:
    assert (await replied(lambda prompt, timeout_seconds: str(timeout_seconds))).text == "5"


async def test_a_sampling_option_the_function_cannot_take_is_an_error() -> None:
    request = asked(sampling={"temperature": 0.5})
    with pytest.raises(ConfigError, match="temperature"):
        await replied(lambda prompt: prompt, request)
    assert (await replied(lambda request: str(request.sampling), request)).text


@pytest.mark.parametrize("wrong", [lambda: "", lambda *, prompt: "", "text", str])
def test_an_object_that_cannot_be_a_model_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        CallableClient(wrong)


# -- what it may return ---------------------------------------------------------------------------


async def test_a_plain_text_reply_has_no_usage() -> None:
    reply = await replied(lambda prompt: "fine")
    assert reply == Reply(text="fine", model="m-1")


async def test_a_text_is_cut_at_the_output_cap() -> None:
    reply = await replied(lambda prompt: "é" * 1_000, asked(max_output_tokens=10))
    assert (reply.text, reply.finish_reason) == ("é" * 20, "length")


async def test_replies_dicts_and_sdk_objects_are_accepted() -> None:
    usage = Usage(3, 4, requests=1)
    whole = Reply(text="x", usage=usage, reasoning="hm")
    assert await replied(lambda prompt: whole) is whole
    as_dict = {"text": "x", "usage": {"input_tokens": 3, "output_tokens": 4, "requests": 1}}
    assert (await replied(lambda prompt: as_dict)).usage == usage
    stated = {"prompt_tokens": 3, "completion_tokens": 4}
    response = completion("x", usage=stated)
    assert (await replied(lambda prompt: response)).usage == usage
    sdk = types.SimpleNamespace(model_dump=lambda: response)
    assert (await replied(lambda prompt: sdk)).text == "x"


@pytest.mark.parametrize(
    "value", [None, 3, b"x", {}, {"text": 3}, {"choices": 1}, {"text": "x", "usage": "much"}]
)
async def test_any_other_return_value_is_an_error_that_says_what_to_return(value: Any) -> None:
    with pytest.raises(ModelError, match=r"return a str|is not a reply") as caught:
        await replied(lambda prompt: value)
    assert not caught.value.retryable


scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "usage", "choices", "message", "tool_calls", "opaque", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(values)
def test_any_return_value_is_a_reply_or_a_model_error(value: Any) -> None:
    async def once() -> None:
        with contextlib.suppress(ModelError):
            assert isinstance(await replied(lambda prompt: value), Reply)

    asyncio.run(once())


# -- sync, async, generators ----------------------------------------------------------------------


async def test_async_functions_run_on_the_loop_and_others_in_a_thread() -> None:
    async def here(prompt: str) -> str:
        return threading.current_thread().name

    class There:
        async def __call__(self, prompt: str) -> str:
            return threading.current_thread().name

    own = threading.current_thread().name
    assert (await replied(here)).text == own
    assert (await replied(There())).text == own
    assert (await replied(lambda prompt: here(prompt))).text == own
    assert (await replied(lambda prompt: threading.current_thread().name)).text == "rlm-callable"


async def parts_of(function: Callable[..., Any], request: Request | None = None) -> list[Any]:
    client = CallableClient(function)
    return [part async for part in client.stream(request or asked(), timeout_seconds=5)]


async def test_generators_stream_and_may_end_with_a_reply() -> None:
    def pieces(prompt: str) -> Iterator[str]:
        yield from ("a", "", "b")

    async def with_usage(prompt: str) -> AsyncIterator[Any]:
        yield "a"
        yield "b"
        yield {"usage": {"input_tokens": 1, "output_tokens": 2, "requests": 1}, "text": ""}

    assert await parts_of(pieces) == ["a", "b", Reply(text="ab", model="m-1")]
    *texts, last = await parts_of(with_usage)
    assert (texts, last.text, last.usage) == (["a", "b"], "ab", Usage(1, 2, requests=1))
    assert await parts_of(lambda prompt: Reply(text="x")) == ["x", Reply(text="x")]
    assert await parts_of(lambda prompt: "") == [Reply(text="", model="m-1")]


async def test_an_endless_generator_is_stopped_at_the_cap_and_closed() -> None:
    closed = threading.Event()

    def endless(prompt: str) -> Iterator[str]:
        try:
            while True:
                yield "word "
        finally:
            closed.set()

    *texts, last = await parts_of(endless, asked(max_output_tokens=5))
    assert ("".join(texts), last.finish_reason) == ("word " * 4, "length")
    assert await asyncio.to_thread(closed.wait, 10)


# -- errors, time and threads ---------------------------------------------------------------------


class RateLimited(Exception):
    status_code = 429
    headers = types.MappingProxyType({"Retry-After": "7"})


@pytest.mark.parametrize(
    ("error", "facts"),
    [
        (RateLimited("slow down"), (429, True, False, 7.0)),
        (ConnectionRefusedError("no"), (None, True, False, None)),
        (ConnectionResetError("gone"), (None, True, True, None)),
        (TimeoutError("late"), (None, True, True, None)),
        (KeyError("x"), (None, False, False, None)),
        (SystemExit(3), (None, False, False, None)),
        (StopIteration("x"), (None, False, False, None)),
    ],
)
async def test_an_exception_becomes_a_model_error_with_its_details(
    error: BaseException, facts: tuple[Any, ...]
) -> None:
    def fails(prompt: str) -> str:
        raise error

    with pytest.raises(ModelError) as caught:
        await replied(fails)
    found = caught.value
    assert facts == (found.status, found.retryable, found.ambiguous, found.retry_after_seconds)


async def test_model_errors_are_passed_on_but_secrets_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_API_KEY", "very-private-value")
    own = ModelError("mine", retryable=True)

    async def fails(prompt: str) -> str:
        if prompt == "own":
            raise own
        raise ValueError(f"bad {prompt} very-private-value https://me:pass@host/x?key=abc")

    with pytest.raises(ModelError) as caught:
        await replied(fails, asked("own"))
    assert caught.value is own
    with pytest.raises(ModelError) as caught:
        await replied(fails, asked("sk-0123456789abcdefghij"))
    text = str(caught.value)
    assert "ValueError" in text
    assert not any(word in text for word in ("private", "0123", "pass@", "me:", "=abc"))


async def test_a_hung_function_blocks_only_its_own_threads() -> None:
    release = threading.Event()
    calls: list[str] = []

    def hangs(prompt: str) -> str:
        calls.append(prompt)
        release.wait()
        return prompt

    client = CallableClient(hangs, threads=2)
    for number in range(5):
        with pytest.raises(ModelError, match=r"within 0\.05 s") as caught:
            await client.complete(asked(str(number)), timeout_seconds=0.05)
    assert "2 earlier calls" in str(caught.value)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)
    assert calls == ["0", "1"]  # the others never began, and never will
    release.set()
    assert (await client.complete(asked("last"), timeout_seconds=10)).text == "last"
    assert calls == ["0", "1", "last"]
    await client.close()


async def test_cancelling_a_call_cancels_its_async_function() -> None:
    reached, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(prompt: str) -> str:
        reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    task = asyncio.create_task(replied(waits))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


async def test_many_calls_share_few_threads() -> None:
    lock, running, most = threading.Lock(), 0, 0
    gate = threading.Barrier(3)

    def counts(prompt: str) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(timeout=30)
        with lock:
            running -= 1
        return prompt

    client = CallableClient(counts, threads=3)
    requests = [client.complete(asked(str(n)), timeout_seconds=30) for n in range(9)]
    replies = await asyncio.gather(*requests)
    assert [reply.text for reply in replies] == [str(n) for n in range(9)]
    assert most == 3


async def test_closing_tells_a_generator_to_stop() -> None:
    reached, stopped = threading.Event(), threading.Event()

    def endless(prompt: str) -> Iterator[str]:
        try:
            while True:
                reached.set()
                yield ""
        finally:
            stopped.set()

    client = CallableClient(endless)
    task = asyncio.create_task(client.complete(asked(), timeout_seconds=60))
    await asyncio.to_thread(reached.wait)
    await client.close()
    assert await asyncio.to_thread(stopped.wait, 10)
    assert (await task).text == ""


def test_info_and_repr_describe_the_client() -> None:
    def short_name(prompt: str) -> str:
        return prompt

    info = ModelInfo(window_tokens=9, price=Price(1, 2), profile="tiny")
    client = CallableClient(short_name, info=info)
    assert client.info("any") is info
    assert repr(client) == "CallableClient(short_name)"
    assert client.identity is None
    assert CallableClient(short_name, identity="v2").identity == "v2"
    assert CallableClient(short_name).info("any") == ModelInfo()
    with pytest.raises(ConfigError, match="threads"):
        CallableClient(short_name, threads=0)
