"""Keys and the values of custom headers: not in errors, not in logs, not in any repr."""

import logging
import traceback

import pytest

from rlm.errors import ModelError
from rlm.testing.fake_server import BEHAVIOURS
from tests.clients.conformance.bench import HEADER, KEY, ask, client_of, serving

ECHOED = f"the key {KEY} and the header {HEADER} are wrong"
FAILING = [{"behaviour": each, "size_bytes": 1_000} for each in BEHAVIOURS if each != "never"]
STATUSES = [{"status": status, "error": ECHOED} for status in (400, 401, 403, 404, 429, 500)]


async def test_no_secret_appears_in_errors_or_logs_in_any_form(
    dialect: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in list(logging.root.manager.loggerDict):
        caplog.set_level(logging.DEBUG, logger=name)
    told = [{"behaviour": "error_event", "error": ECHOED}, {"behaviour": "html", "error": ECHOED}]
    answers = [*FAILING, *STATUSES, *told, {"status": 502, "behaviour": "html", "error": ECHOED}]
    shown = []
    async with serving(dialect, *answers, loop=True) as (server, client):
        for _ in answers:
            try:
                await ask(client, how)
            except ModelError as error:
                shown += [repr(error), *traceback.format_exception(error)]
        shown += [repr(client), repr(client._endpoint), repr(server), repr(server.requests)]
        asked_with = server.requests[0].headers
    assert any(KEY in value for value in asked_with.values()), "the key was sent at all"
    assert HEADER in asked_with.values()
    assert any("[secret]" in text for text in shown), "the server did echo it"
    shown += [_everything(record) for record in caplog.records]
    for text in shown:
        assert KEY not in text
        assert HEADER not in text


def _everything(record: logging.LogRecord) -> str:
    cause = record.exc_info and record.exc_info[1]
    told = "".join(traceback.format_exception(cause)) if cause else ""
    return f"{record.getMessage()} {record.__dict__!r} {told}"


async def test_the_url_of_a_request_contains_no_key(dialect: str, how: str) -> None:
    """Addresses end up in the logs of proxies."""
    async with serving(dialect, "hello") as (server, client):
        await ask(client, how)
        (received,) = server.requests
    assert KEY not in received.path
    assert KEY not in str(received.asked)


async def test_a_password_in_the_address_is_hidden(dialect: str, how: str) -> None:
    async with serving(dialect, {"status": 401, "error": "hunter2-secret is wrong"}) as (server, _):
        url = server.url.replace("://", "://user:hunter2-secret@")
        client = client_of(dialect, server, url=url, api_key=None)
        with pytest.raises(ModelError) as caught:
            await ask(client, how)
        await client.close()
        sent = server.requests[0].headers["Authorization"]
    assert sent.startswith("Basic ")
    assert "hunter2" not in f"{caught.value} {client!r}"
