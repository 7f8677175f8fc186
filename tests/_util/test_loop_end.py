"""What belongs to an event loop is closed when that loop ends, even if it was left open."""

import asyncio
import gc

from rlm import RLM, Chat, ScriptedClient
from rlm._util.loop_end import LoopEnd, at_loop_end


def test_callbacks_run_before_the_loop_closes() -> None:
    closed: list[bool] = []
    kept: list[LoopEnd] = []

    async def close() -> None:
        await asyncio.sleep(0)
        closed.append(asyncio.get_running_loop().is_closed())

    async def main() -> None:
        kept.append(await at_loop_end(close))

    asyncio.run(main())
    assert closed == [False]


async def test_a_callback_runs_once() -> None:
    closed: list[int] = []

    async def close() -> None:
        closed.append(1)

    end = await at_loop_end(close)
    await end.aclose()
    await end.aclose()
    assert closed == [1]
    end = await at_loop_end(close)
    del end
    gc.collect()
    await asyncio.sleep(0.01)
    assert closed == [1, 1]


def test_a_chat_left_open_is_closed_with_its_loop() -> None:
    chats: list[Chat] = []

    async def main() -> str:
        one = RLM(ScriptedClient(["```repl\nx = 1\nFINAL(x)\n```"]))
        chats.append(one.chat("text"))
        result = await chats[0].aask("One?")
        assert chats[0]._session is not None
        assert chats[0]._session.variables == ("x",)
        return str(result.answer)

    assert asyncio.run(main()) == "1"
    assert chats[0]._session is not None
    assert chats[0]._session.variables == ()  # its worker is gone
