"""Hosts that raise what ends a task: the cell that called gets an answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rlm.environments.local import LocalEnvironment
from tests.environments.conftest import FakeHost


class Crash(BaseException):
    """A program's own."""


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError("stop"), GeneratorExit("stop"), SystemExit("stop"), Crash("stop")],
    ids=lambda error: type(error).__name__,
)
async def test_a_host_that_ends_its_own_task_answers_with_the_error(
    error: BaseException,
) -> None:
    """Whatever is between a client and a cell: without an answer, the cell would wait for ever."""

    class Ending(FakeHost):
        async def answer(
            self, kind: str, arguments: dict[str, Any], parts: Sequence[str]
        ) -> tuple[dict[str, Any], Sequence[str]]:
            raise error

    environment = LocalEnvironment()
    session = await environment.open(Ending(), {})
    result = await session.execute("llm_query('q')", timeout_seconds=30)
    await session.close()
    await environment.close()
    assert result.error is not None
    assert f"{type(error).__name__}: stop" in result.error.message
