"""Models of Pydantic AI that follow a script, and count what they are asked."""

from collections.abc import Callable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def text_of(messages: list[ModelMessage]) -> str:
    """Everything that a model is shown."""
    return "\n".join(
        str(getattr(part, "content", "")) for message in messages for part in message.parts
    )


class Asked(list[tuple[list[ModelMessage], AgentInfo]]):
    """The requests that a model got."""


def scripted(*answers: str | ModelResponse | Exception) -> tuple[FunctionModel, Asked]:
    """A model that gives these answers in order."""
    asked, left = Asked(), list(answers)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append((messages, info))
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given if isinstance(given, ModelResponse) else ModelResponse([TextPart(given)])

    return FunctionModel(answer), asked


def one_question(question: str, *of_engine: str) -> tuple[FunctionModel, Asked]:
    """An agent's model that asks one question, lets the engine work, and repeats the answer."""
    call = ModelResponse([ToolCallPart("ask", {"question": question})])

    return scripted(call, *of_engine, "The tool said so.")


def by_rules(rule: Callable[[str], str]) -> FunctionModel:
    """A model whose answer is a function of the last message it is shown."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(rule(text_of(messages[-1:])))])

    return FunctionModel(answer)


def tool_returns(messages: list[ModelMessage]) -> list[Any]:
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if part.part_kind == "tool-return"]
