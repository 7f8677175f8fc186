"""Arbitrary input: every line gets one line of JSON back, with its id if it has one."""

import asyncio
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elizaos_plugin_rlm import RLMClient, RLMConfig
from elizaos_plugin_rlm.lines import LineReader, TooLong
from elizaos_plugin_rlm.server import RLMServer

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "id": json_values,
        "method": st.sampled_from(["infer", "status", "shutdown", "other"]) | json_values,
        "params": json_values
        | st.fixed_dictionaries(
            {}, optional={"prompt": json_values, "messages": json_values, "opts": json_values}
        ),
    },
)
lines = st.binary(max_size=80) | (requests | json_values).map(
    lambda each: json.dumps(each).encode()
)


@pytest.mark.usefixtures("no_engine")
def test_every_line_gets_exactly_one_answer() -> None:
    @given(st.lists(lines, max_size=5))
    def check(sent: list[bytes]) -> None:
        answered = asyncio.run(exchange(sent))
        assert len(answered) == len([line for line in sent if line.strip()])
        for answer in answered:
            assert set(answer) in ({"id", "result"}, {"id", "error"})
        expected = [identity_of(line) for line in sent if line.strip()]
        assert sorted(map(repr, expected)) == sorted(repr(answer["id"]) for answer in answered)

    check()


async def exchange(sent: list[bytes]) -> list[dict[str, Any]]:
    written: list[bytes] = []
    server = RLMServer(RLMClient(RLMConfig()), written.append)
    for line in sent:
        await server.take(line)
    await server.finish()
    assert not [line for line in written if b"\n" in line]
    return [json.loads(line, parse_constant=pytest.fail) for line in written]


def identity_of(line: bytes) -> Any:
    """Return the id, if the line is a JSON object."""

    def refuse(name: str) -> float:
        raise ValueError(name)

    try:
        request = json.loads(line.decode("utf-8"), parse_constant=refuse)
    except ValueError:
        return None
    return request.get("id") if isinstance(request, dict) else None


class Chunks(io.RawIOBase):
    """A pipe that returns data in pieces of arbitrary size."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def read(self, size: int = -1) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@given(st.lists(st.binary(max_size=12)), st.integers(min_value=1, max_value=20))
def test_lines_are_read_however_they_are_split(pieces: list[bytes], most: int) -> None:
    async def read() -> list[bytes | None]:
        reader = LineReader(Chunks(list(pieces)), most)
        return [None if isinstance(line, TooLong) else line async for line in reader]

    whole = b"".join(pieces)
    *ended, rest = whole.split(b"\n")
    expected = [*ended, rest] if rest else ended
    assert asyncio.run(read()) == [None if len(line) > most else line for line in expected]
