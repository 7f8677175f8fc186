"""Watch a run: `stream` yields every event as it happens."""

import asyncio

from rlm import RLM
from rlm.events import CallEnded, CellEnded, ModelAsked, RunEnded, RunStarted

LOGBOOK = "".join(
    f"Day {day}: calm sea, wind from the west, {day % 7} sails in sight.\n"
    for day in range(1, 2_000)
)
LOGBOOK += "Note: the spare anchor is kept in shed number 17.\n"


async def main() -> None:
    rlm = RLM("offline/extractive")
    try:
        async for event in rlm.stream("Where is the spare anchor kept?", LOGBOOK):
            if isinstance(event, RunStarted):
                print(f"started on {event.context_description}")
            elif isinstance(event, ModelAsked):
                print(f"step {event.step}: asking {event.model}")
            elif isinstance(event, CellEnded):
                print(f"step {event.step}: a cell ran; calls: {event.calls}")
            elif isinstance(event, CallEnded):
                print(f"step {event.step}: a call replied {event.reply!r}")
            elif isinstance(event, RunEnded):
                print(f"ended: {event.stop_reason}, {event.answer}")
    finally:
        await rlm.aclose()


if __name__ == "__main__":
    asyncio.run(main())

# prints: started on a str of ...
# prints: step 1: asking offline/extractive
# prints: step 2: a cell ran; calls: 0
# prints: ended: passages, No language model is configured. ...
# prints:    Note: the spare anchor is kept in shed number 17.
