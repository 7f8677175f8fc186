"""An agent of Pydantic AI that asks about a log far larger than any window. It needs no key.

Both parts are played by a function here: the agent, which calls the tool, and the model of the
engine, which writes code. With a real model, only the first argument of `Agent` differs.
"""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from recursivelm_pydantic_ai import AskToolset

LOG = "INFO all is well\n" * 100_000 + "ERROR disk sda1 is full\n" + "INFO all is well\n" * 100_000
CODE = """```repl
errors = [line for line in context.splitlines() if line.startswith("ERROR")]
FINAL(f"{len(errors)} error: {errors[0]}")
```"""


def play(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer as a model would: the agent asks, the engine's model writes code."""
    if not info.function_tools:
        return ModelResponse([TextPart(CODE)])
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse([TextPart(f"Last night there was {last.content}.")])
    return ModelResponse([ToolCallPart("ask", {"question": "Which errors are there?"})])


def main() -> None:
    toolset = AskToolset(LOG, about="last night's log")
    agent = Agent(FunctionModel(play), toolsets=[toolset])
    result = agent.run_sync("What went wrong last night?")
    print(result.output)
    print(f"{len(LOG):,} characters of log, {result.usage.input_tokens:,} tokens of input")


if __name__ == "__main__":
    main()
