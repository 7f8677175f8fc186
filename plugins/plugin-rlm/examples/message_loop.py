"""An elizaOS agent with a prompt of a megabyte: its message loop, on the real runtime.

A provider puts a timetable of 20,000 ferries into the prompt of every message. elizaOS expects XML
that echoes three codes from the prompt's start, middle and end. Set ELIZA_RLM_BACKEND and a key of
that backend to use a real model; otherwise a local scripted one answers.
"""

import asyncio
import logging
import os
from contextlib import ExitStack
from typing import Any

from elizaos import AgentRuntime
from elizaos.types.agent import Character
from elizaos.types.components import Provider, ProviderResult
from elizaos.types.memory import Memory
from elizaos.types.plugin import Plugin
from elizaos.types.primitives import Content, string_to_uuid
from rlm.testing.fake_server import Asked, FakeServer

from elizaos_plugin_rlm import RLMService, plugin

COLUMNS = 76
PORTS = ["Dover", "Calais", "Ostend", "Hull"] * 5_000
PORTS[7_777] = "Brest"
TIMETABLE = "\n".join(
    f"ferry {number:05d} to {port} leaves at {number % 24:02d}:30"
    for number, port in enumerate(PORTS)
)
READ = """```repl
import re
code = r"^(initial|middle|end) code: (\\S+)$"
codes = dict(re.findall(code, context, re.M))
print(f"{len(context):,} characters, ending in:", context[-110:], sep="\\n")
for line in re.findall(r".*\\bBrest\\b.*", context): print(line)
```"""
ANSWER = """```repl
echo = "".join(f"<one_{n}_code>{codes[n]}</one_{n}_code>" for n in codes)
text = "The ferry to Brest, number 07777, leaves at 01:30."
FINAL(f"<response>{echo}<thought>Looked it up.</thought>"
      f"<actions>REPLY</actions><text>{text}</text></response>")
```"""


def scripted_model(asked: Asked) -> str:
    """Read, then answer, as a capable model does with such a prompt."""
    return ANSWER if "07777" in asked.text else READ


async def timetable(runtime: Any, message: Any, state: Any) -> ProviderResult:
    return ProviderResult(text=f"# Timetable\n{TIMETABLE}\n# Message: {message.content.text}")


HARBOUR = Plugin(
    name="harbour",
    description="what a harbour knows",
    providers=[Provider(name="TIMETABLE", description="every ferry", get=timetable)],
)


async def talk(settings: dict[str, Any]) -> None:
    runtime = AgentRuntime(
        character=Character(name="Ada", bio=["keeps the harbour"], system="You are Ada."),
        plugins=[HARBOUR, plugin],
        settings=settings,
        check_should_respond=False,
    )
    await runtime.initialize()
    question = "When does the ferry to Brest leave?"
    print(f"User: {question}")
    message = Memory(
        id=string_to_uuid("message"),
        entity_id=string_to_uuid("user"),
        room_id=string_to_uuid("harbour"),
        content=Content(text=question),
    )
    result = await runtime.message_service.handle_message(runtime, message)
    show(runtime.get_service("rlm"))
    print(f"\nAda:  {result.response_content.text if result.response_content else '(no answer)'}")
    await runtime.stop()


def show(service: Any) -> None:
    """Print what the model did, and what it cost."""
    assert isinstance(service, RLMService)
    for trajectory in service.client.trajectories:
        for step in trajectory.steps:
            print(f"\n-- step {step.step_number}: the model's code")
            print(cut(step.code_executed))
            if step.repl_output:
                print(f"-- what it printed\n{cut(step.repl_output)}")
    cost = service.client.get_cost_summary()
    print(f"\n{cost['requests']} requests, {cost['total_tokens']:,} tokens, ", end="")
    print("cost unknown" if cost["total_cost_usd"] is None else f"${cost['total_cost_usd']:.4f}")


def cut(text: str) -> str:
    """Cut lines to the width of a terminal."""
    return "\n".join(
        line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…" for line in text.splitlines()
    )


def main() -> None:
    logging.getLogger("elizaos").setLevel(logging.ERROR)
    logging.getLogger("Ada").setLevel(logging.ERROR)
    settings: dict[str, Any] = {}
    with ExitStack() as stack:
        if not os.environ.get("ELIZA_RLM_BACKEND"):
            server = stack.enter_context(FakeServer(rules=[("", scripted_model)]))
            settings = {"ELIZA_RLM_BACKEND": "openai", **server.variables}
            print("(no ELIZA_RLM_BACKEND is set: a scripted model answers)")
        asyncio.run(talk(settings))


if __name__ == "__main__":
    main()
