"""Models of dspy that follow a script, and count what they are asked."""

import threading
from collections.abc import Callable

import dspy
from dspy import lm15

Rule = Callable[[str], str]


def cell(code: str) -> str:
    """A reply to the engine that runs code."""
    return f"```repl\n{code}\n```"


def action(code: str) -> str:
    """A reply to dspy.RLM that runs code."""
    return fields(reasoning="so", code=f"```python\n{code}\n```")


def fields(**values: object) -> str:
    """A reply to a predictor of dspy."""
    shown = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in values.items())
    return f"{shown}\n\n[[ ## completed ## ]]"


class Engine:
    """Answers requests from a list, or by a rule about the last message."""

    def __init__(self, answers: list[str | Exception] | Rule) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self.asked: list[lm15.Request] = []

    def complete(self, request: lm15.Request) -> lm15.Response:
        with self._lock:
            self.asked.append(request)
            if isinstance(self._answers, list):
                given = self._answers.pop(0)
            else:
                given = self._answers(request.messages[-1].text or "")
        if isinstance(given, Exception):
            raise given
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(given),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=100, output_tokens=1),
        )

    def stream(self, request: lm15.Request) -> object:
        return lm15.response_to_events(self.complete(request))

    def close(self) -> None:
        pass


class AsyncEngine:
    """The same for `lm.acall`, which dspy's own modules await."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def complete(self, request: lm15.Request) -> lm15.Response:
        return self._engine.complete(request)

    async def stream(self, request: lm15.Request) -> object:
        return self._engine.stream(request)

    async def aclose(self) -> None:
        pass


def scripted(*answers: str | Exception) -> tuple[dspy.LM, list[lm15.Request]]:
    """A model that gives these answers in order, and the requests it gets."""
    return _model(Engine(list(answers)))


def by_rule(rule: Rule) -> tuple[dspy.LM, list[lm15.Request]]:
    """A model whose answer is a function of the last message it is shown."""
    return _model(Engine(rule))


def _model(engine: Engine) -> tuple[dspy.LM, list[lm15.Request]]:
    lm = dspy.LM("scripted/model", engine=engine, async_engine=AsyncEngine(engine), num_retries=0)
    return lm, engine.asked


def text_of(request: lm15.Request) -> str:
    """Everything that a model is shown."""
    system = request.system if isinstance(request.system, str) else ""
    if request.system is not None and not system:
        system = "".join(getattr(part, "text", "") for part in request.system)
    return "\n".join([system, *(message.text or "" for message in request.messages)])
