"""The scripted client: what answers, in which order, and what it counts."""

import asyncio
import re
import threading

import pytest

from rlm.errors import ConfigError, ModelError
from rlm.messages import Message, ModelInfo, Price, Reply, Request, Usage
from rlm.testing.scripted import ScriptedClient
from tests.clients.misbehaving import asked


async def text_of(client: ScriptedClient, request: Request) -> str:
    return (await client.complete(request, timeout_seconds=5)).text


async def test_the_script_is_read_in_order_for_any_model() -> None:
    client = ScriptedClient(["one", "two"])
    first, second = asked("a"), asked("b", model="other")
    assert [await text_of(client, first), await text_of(client, second)] == ["one", "two"]
    assert client.requests == [first, second]
    assert client.in_flight == 0


async def test_rules_come_before_the_script_and_see_the_whole_request() -> None:
    client = ScriptedClient(["script"], [("needle", "rule"), (re.compile(r"b+a"), "regex")])
    client.add_rule("bbba", "too late")
    history = (Message("system", "be"), Message("user", "needle"), Message("user", "x"))
    assert await text_of(client, asked(messages=history)) == "rule"
    assert await text_of(client, asked("bbba")) == "regex"
    assert await text_of(client, asked("nothing")) == "script"


async def test_a_rule_matches_text_parts() -> None:
    client = ScriptedClient(rules=[("needle", "rule")])
    parts = Message("user", [{"type": "text", "text": "a needle"}, {"type": "image_url"}])
    assert await text_of(client, asked(messages=(parts,))) == "rule"


async def test_entries_may_be_texts_replies_errors_and_functions() -> None:
    whole = Reply(text="whole", finish_reason="refusal")
    error = ModelError("busy", status=429, retryable=True)
    client = ScriptedClient([whole, error, lambda r: r.model, lambda _: whole, lambda _: error])
    assert await client.complete(asked(), timeout_seconds=5) is whole
    for expected in (None, "m-1", "whole", None):
        if expected is None:
            with pytest.raises(ModelError, match="busy"):
                await client.complete(asked(), timeout_seconds=5)
        else:
            assert await text_of(client, asked()) == expected
    assert client.in_flight == 0


async def test_an_exhausted_script_says_what_to_do() -> None:
    client = ScriptedClient(["one"])
    await text_of(client, asked())
    with pytest.raises(ModelError, match=r"has 1 entry, but this is request 2; add an entry"):
        await text_of(client, asked())
    assert (len(client.requests), client.in_flight) == (2, 0)


@pytest.mark.parametrize(
    ("text", "cap", "shown", "output_tokens", "finish"),
    [
        ("", 5, "", 1, "stop"),
        ("abcd", 5, "abcd", 2, "stop"),
        ("a" * 19, 5, "a" * 19, 5, "stop"),
        ("a" * 20, 5, "a" * 19, 5, "length"),
        ("ü" * 20, 5, "ü" * 9, 5, "length"),
        ("x\ud800", 5, "x\ud800", 2, "stop"),
    ],
)
async def test_usage_is_counted_and_the_output_cap_applied(
    text: str, cap: int, shown: str, output_tokens: int, finish: str
) -> None:
    client = ScriptedClient([text])
    reply = await client.complete(asked("12345678", max_output_tokens=cap), timeout_seconds=5)
    assert (reply.text, reply.finish_reason) == (shown, finish)
    assert reply.usage == Usage(input_tokens=3, output_tokens=output_tokens, requests=1)


async def test_usage_may_be_given_by_a_function() -> None:
    client = ScriptedClient(["a", "b"], usage=lambda request, text: Usage(7, len(text)))
    assert (await client.complete(asked(), timeout_seconds=5)).usage == Usage(7, 1)
    silent = ScriptedClient(["a"], usage=lambda request, text: None)
    assert (await silent.complete(asked(), timeout_seconds=5)).usage is None


async def test_concurrent_requests_are_counted_and_served_in_order() -> None:
    client = ScriptedClient([str(number) for number in range(20)])
    texts = await asyncio.gather(*(text_of(client, asked()) for _ in range(20)))
    assert texts == [str(number) for number in range(20)]
    assert (client.max_in_flight, client.in_flight) == (20, 0)


async def test_threads_share_a_script_without_losing_an_entry() -> None:
    client = ScriptedClient([str(number) for number in range(200)])
    texts: list[str] = []

    def work() -> None:
        async def several() -> list[str]:
            return [await text_of(client, asked()) for _ in range(50)]

        texts.extend(asyncio.run(several()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(texts, key=int) == [str(number) for number in range(200)]
    assert (len(client.requests), client.in_flight) == (200, 0)


async def test_a_delay_longer_than_the_timeout_is_a_timeout() -> None:
    client = ScriptedClient(["late"], delay_seconds=60)
    with pytest.raises(ModelError) as caught:
        await client.complete(asked(), timeout_seconds=0.01)
    assert (caught.value.retryable, caught.value.ambiguous) == (True, True)
    assert client.in_flight == 0


async def test_cancelling_leaves_nothing_in_flight() -> None:
    client = ScriptedClient(["late"], delay_seconds=60)
    task = asyncio.create_task(client.complete(asked(), timeout_seconds=100))
    await asyncio.sleep(0)
    assert client.in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.in_flight == 0


async def test_streaming_yields_words_and_then_the_reply() -> None:
    client = ScriptedClient([" two  words\n"])
    *words, reply = [part async for part in client.stream(asked(), timeout_seconds=5)]
    assert isinstance(reply, Reply)
    assert len(words) == 2
    assert "".join(map(str, words)) == reply.text == " two  words\n"
    await client.close()


def test_info() -> None:
    client = ScriptedClient(price=Price(1.0, 2.0), window_tokens=100, profile="tiny")
    assert client.info("any") == ModelInfo(100, Price(1.0, 2.0), "tiny")
    assert ScriptedClient().info("any") == ModelInfo()


def test_a_single_text_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"write ScriptedClient\(\['FINAL\(1\)'\]\)"):
        ScriptedClient("FINAL(1)")
