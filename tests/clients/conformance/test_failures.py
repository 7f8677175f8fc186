"""What each way of failing means, in every dialect: try again or not, perhaps billed or not."""

import pytest

from rlm.clients import _http
from rlm.testing.fake_server import FakeServer
from tests.clients.conformance.bench import (
    ENDLESS,
    SECONDS,
    ask,
    client_of,
    failure,
    serving,
    timeout,
)

AGAIN = (408, 409, 429, 500, 502, 503, 504, 529)
NEVER = (400, 401, 403, 404, 405, 413, 422)
ADVICE = {
    401: "MY_KEY",
    403: "MY_KEY",
    404: "check the model name",
    429: "quota",
    500: "try again later",
}


@pytest.mark.parametrize("status", [*AGAIN, *NEVER])
async def test_each_status_has_its_kind_of_failure(dialect: str, how: str, status: int) -> None:
    async with serving(dialect, {"status": status, "error": "the reason"}) as (server, client):
        error = await failure(client, how)
        assert server.count == 1, "a client never tries again by itself"
    assert (error.status, error.retryable, error.ambiguous) == (status, status in AGAIN, False)
    assert error.retry_after_seconds is None
    for words in (f"HTTP {status}", "the reason", ADVICE.get(status, "")):
        assert words in str(error)


@pytest.mark.parametrize(
    ("form", "seconds", "lowest"),
    [("seconds", 7, 7), ("seconds", 0, 0), ("milliseconds", 1.25, 1.25), ("date", 90, 30)],
)
async def test_retry_after_is_read_in_each_form(
    dialect: str, how: str, form: str, seconds: float, lowest: float
) -> None:
    answer = {"status": 429, "retry_after": seconds, "retry_after_form": form}
    async with serving(dialect, answer) as (_, client):
        wait = (await failure(client, how)).retry_after_seconds
    assert wait is not None
    assert lowest <= wait <= seconds


@pytest.mark.parametrize(
    "behaviour",
    [
        *("cut", "reset", "reset_midway", "truncated", "malformed"),
        *("html", "empty_body", "no_content"),
        ["drip", "cut"],
        ["crlf", "truncated"],
        ["gzip", "cut"],
    ],
    ids=str,
)
async def test_an_unusable_reply_may_have_been_billed(
    dialect: str, how: str, behaviour: object
) -> None:
    answer = {"reply": "some words that matter", "behaviour": behaviour}
    async with serving(dialect, answer, "fine") as (server, client):
        error = await failure(client, how)
        assert (error.retryable, error.ambiguous) == (True, True)
        assert (await ask(client, how)).reply.text == "fine", "and the client goes on"
        assert server.count == 2


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_gateways_error_page_is_a_failure_with_its_status(
    dialect: str, how: str, status: int
) -> None:
    answer = {"status": status, "behaviour": "html", "error": "Bad gateway"}
    async with serving(dialect, answer) as (_, client):
        error = await failure(client, how)
    assert (error.status, error.retryable, error.ambiguous) == (status, True, False)
    assert len(str(error)) < 500


async def test_a_timeout_after_sending_is_ambiguous(dialect: str, how: str) -> None:
    async with serving(dialect, {"behaviour": "never"}) as (server, client):
        error = await timeout(client, how, once=lambda: server.count == 1)
    assert (error.status, error.retryable, error.ambiguous) == (None, True, True)
    assert f"{SECONDS:g} s" in str(error)


async def test_a_timeout_during_a_reply_is_ambiguous(dialect: str, how: str) -> None:
    answer = {**ENDLESS, "behaviour": "drip"}
    async with serving(dialect, answer) as (server, client):
        error = await timeout(
            client, how, once=lambda: [each.status for each in server.requests] == [200]
        )
    assert (error.status, error.retryable, error.ambiguous) == (None, True, True)


async def test_a_connection_dropped_on_reuse_is_a_retryable_failure(dialect: str, how: str) -> None:
    """The keep-alive race: the server gave the connection up just when it was used again."""
    async with serving(dialect, {"reply": "one", "behaviour": "stale"}, "two") as (server, client):
        assert (await ask(client, how)).reply.text == "one"
        error = await failure(client, how)
        assert (error.retryable, error.ambiguous) == (True, True)
        assert (await ask(client, how)).reply.text == "two"
        assert [each.connection for each in server.requests] == [1, 1, 2]


@pytest.mark.parametrize("behaviour", ["huge", ["huge", "gzip"]], ids=str)
async def test_an_oversized_reply_is_refused(
    dialect: str, how: str, behaviour: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http, "LARGEST_RESPONSE_BYTES", 1 << 20)
    answer = {"behaviour": behaviour, "size_bytes": 3 << 20}
    async with serving(dialect, answer, "fine") as (_, client):
        error = await failure(client, how)
        assert (await ask(client, how)).reply.text == "fine"
    assert (error.retryable, error.ambiguous) == (False, True)
    assert "larger than 1 MiB" in str(error)


async def test_a_large_reply_within_the_limit_is_complete(dialect: str, how: str) -> None:
    async with serving(dialect, {"behaviour": "huge", "size_bytes": 2_000_000}) as (_, client):
        assert len((await ask(client, how)).reply.text) == 2_000_000


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(dialect: str, how: str, status: int) -> None:
    async with FakeServer(["stolen"]) as thief:
        target = thief.url + "/v1/chat/completions?token=abc"
        answer = {"behaviour": "redirect", "status": status, "location": target}
        async with serving(dialect, answer) as (server, client):
            error = await failure(client, how)
            assert (server.count, thief.count) == (1, 0)
    assert (error.status, error.retryable, error.ambiguous) == (status, False, False)
    assert "redirect" in str(error)
    assert "token=abc" not in str(error)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_error_inside_a_reply_with_status_200(dialect: str, how: str, status: int) -> None:
    answer = {"reply": "so far so", "behaviour": "error_event", "status": status}
    async with serving(dialect, {**answer, "error": "it broke"}) as (_, client):
        error = await failure(client, how)
    assert (error.retryable, error.ambiguous) == (True, True)
    assert "it broke" in str(error)
    assert error.status in {None, status, 500}, "not every dialect says which"


async def test_an_unreachable_server_is_a_failure(dialect: str, how: str) -> None:
    async with FakeServer(["hello"]) as server:
        client = client_of(dialect, server)
        host = server.url.removeprefix("http://")
    try:
        error = await failure(client, how)
    finally:
        await client.close()
    assert (error.status, error.retryable, error.ambiguous) == (None, True, False)
    assert host in str(error)
    assert "is the server running" in str(error)
