"""Servers are hostile: any field of a reply may be anything, and no reader may stumble over it."""

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from rlm.clients._dialect import Dialect
from rlm.testing.fake_server import Answer, Asked, FakeServer
from rlm.testing.fake_server.dialects import WRITERS
from rlm.testing.fake_server.reply import make_reply
from rlm.testing.fake_server.script import Call
from tests.clients.conformance.bench import client_of

WRONG: tuple[Any, ...] = (
    *(None, True, 7, -1.5, 1e400, "text", "", [], [None], [[]], ["text"]),
    *({}, {"a": None}, [{}], [{"type": None}], {"type": []}),
)
EVERYTHING = Answer(reply="a b", reasoning="c d", tool_calls=(Call("f", {"a": 1}),))


@pytest.fixture
def reader(dialect: str) -> Dialect:
    with FakeServer(["unused"]) as server:
        return client_of(dialect, server)._dialect


def written(dialect: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A whole reply with everything in it, and the same as events."""
    writer = WRITERS[dialect]
    turn = make_reply(1, Asked(dialect, "m-1", "hi", stream=False, body={}), EVERYTHING)
    events = [event.payload for event in writer.events(turn)]
    return writer.plain(turn), [event for event in events if isinstance(event, dict)]


def spoilt(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The document with one place of it missing, or replaced by something wrong."""
    for path in places(document):
        for value in (*WRONG, "missing"):
            copied = copy.deepcopy(document)
            holder: Any = copied
            for step in path[:-1]:
                holder = holder[step]
            if value == "missing":
                del holder[path[-1]]
            else:
                holder[path[-1]] = copy.deepcopy(value)
            yield f"{path} = {json.dumps(value)}", copied


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict | list):
        steps = list(value) if isinstance(value, dict) else range(len(value))
        for step in steps:
            yield from places(value[step], (*path, step))


def test_wrong_types_in_a_reply_never_crash_the_client(reader: Dialect, dialect: str) -> None:
    plain, _ = written(dialect)
    tried = 0
    for what, document in spoilt(plain):
        tried += 1
        try:
            if reader.error_in(document) is None:
                reader.reply(document)
        except ValueError:
            pass  # how a reader says that there is no reply
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error
    assert tried > 100


def test_wrong_types_in_a_stream_never_crash_the_client(reader: Dialect, dialect: str) -> None:
    _, events = written(dialect)
    tried = 0
    for number, event in enumerate(events):
        for what, broken in spoilt(event):
            tried += 1
            try:
                read_stream(reader, [*events[:number], broken, *events[number + 1 :]])
            except Exception as error:
                raise AssertionError(f"event {number}: {what}: {error!r}") from error
    assert tried > 100


def read_stream(reader: Dialect, events: list[dict[str, Any]]) -> None:
    """As the client does: what `add` raises is not caught, what `reply` raises is."""
    streamed = reader.streamed()
    for event in events:
        if reader.error_in(event) is not None:
            return
        assert isinstance(streamed.add(event), str)
    if streamed.complete:
        with contextlib.suppress(ValueError):
            streamed.reply()
