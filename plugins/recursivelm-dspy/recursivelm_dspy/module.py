"""The engine as a module of dspy: a signature in, a prediction out."""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, cast

import dspy
from pydantic import BaseModel, ConfigDict, RootModel, create_model
from pydantic_core import to_jsonable_python

from recursivelm_dspy.client import DspyClient
from rlm import RLM, Limits, RunResult
from rlm.errors import ConfigError, ModelError
from rlm.limits import limits_of

__all__ = ["LIMITS", "MAX_INPUT_CHARS", "RecursiveLM"]

LIMITS = Limits(max_steps=20, max_calls=500)
"""What one call may use, unless the module is given other limits."""

MAX_INPUT_CHARS = 20_000
"""The longest input that is part of the question; anything longer belongs in the context."""

RUN = "run"


class RecursiveLM(dspy.Module):
    """Answer with a recursive language model: code looks into inputs of any size.

        answer = RecursiveLM("context, question -> answer: str, pages: list[int]")
        prediction = answer(context=open("report.txt").read(), question="Which pages name a risk?")

    The input called `context`, or else the first one, is what code looks into and models never see
    whole; `context` may name others. The other inputs are the question. Outputs have the types of
    the signature. `lm` and `sub_lm` default to dspy's configured model, `limits` hold for each
    call, and all other options are those of `RLM`.
    """

    def __init__(
        self,
        signature: type[dspy.Signature] | str,
        *,
        context: str | Sequence[str] | None = None,
        lm: Any = None,
        sub_lm: Any = None,
        limits: Limits | Mapping[str, Any] = LIMITS,
        **options: Any,
    ) -> None:
        super().__init__()
        # It makes no requests: optimizers find it, and it carries what they change, and the model.
        self.predict = dspy.Predict(signature)
        self.predict.lm = lm
        self.sub_lm = sub_lm
        self.context_fields = _context_fields(self.signature, context)
        self._limits = limits_of(limits, LIMITS)
        self._options = options
        if RUN in self.signature.output_fields:
            raise ConfigError(
                f"an output can't be called {RUN!r}: predictions already have that attribute"
            )

    @property
    def signature(self) -> type[dspy.Signature]:
        """The signature with the instructions that an optimizer may have changed."""
        return cast("type[dspy.Signature]", self.predict.signature)

    def forward(self, **inputs: Any) -> dspy.Prediction:
        """Answer; what dspy's model raises is raised here, NoAnswerError if there is no answer."""
        question, context = self._question(inputs)
        client, sub_client = self._clients()
        try:
            with RLM(client, sub_model=sub_client, **self._options) as rlm:
                result = rlm.ask(question, context, **self._arguments())
        except ModelError as error:
            raise _cause(error, client, sub_client) from error
        return self._prediction(inputs, result)

    async def aforward(self, **inputs: Any) -> dspy.Prediction:
        """Do the same for programs with an event loop; cancelling it cancels the run."""
        question, context = self._question(inputs)
        client, sub_client = self._clients()
        try:
            async with RLM(client, sub_model=sub_client, **self._options) as rlm:
                result = await rlm.aask(question, context, **self._arguments())
        except ModelError as error:
            raise _cause(error, client, sub_client) from error
        return self._prediction(inputs, result)

    def _clients(self) -> tuple[DspyClient, DspyClient | None]:
        lm = self.predict.lm or dspy.settings.lm
        if lm is None:
            raise dspy.LMNotConfiguredError("call dspy.configure(lm=...) first, or pass lm=")
        sub_lm = self.sub_lm
        return DspyClient(lm), None if sub_lm is None else DspyClient(sub_lm)

    def _arguments(self) -> dict[str, Any]:
        return {
            "response_model": _answer_model(self.signature),
            "limits": self._limits,
            "strict": True,
        }

    def _question(self, inputs: dict[str, Any]) -> tuple[str, Any]:
        """Return the question, and the context."""
        wanted = self.signature.input_fields
        if unexpected := sorted(inputs.keys() - wanted.keys()):
            raise ValueError(f"the signature has no input {unexpected[0]!r}")
        if missing := [name for name in wanted if name not in inputs]:
            raise ValueError(f"the signature needs the input {missing[0]!r}")
        lines = [self.signature.instructions, ""]
        lines += [
            f"{_described(self.signature, name)}: {_shown(name, inputs[name])}"
            for name in wanted
            if name not in self.context_fields
        ]
        chosen = {name: inputs[name] for name in self.context_fields}
        if len(chosen) == 1:
            [name] = chosen
            lines.append(f"The variable `context` holds {_described(self.signature, name)}.")
        elif chosen:
            listed = ", ".join(_described(self.signature, name) for name in chosen)
            lines.append(f"The variable `context` is a dict of {listed}.")
        listed = ", ".join(_described(self.signature, n) for n in self.signature.output_fields)
        lines.append(f"Answer with {listed}.")
        return "\n".join(lines), _context(chosen)

    def _prediction(self, inputs: dict[str, Any], result: RunResult) -> dspy.Prediction:
        names = list(self.signature.output_fields)
        answer: Any = result.answer
        if isinstance(answer, RootModel):
            outputs = {names[0]: answer.root}
        elif isinstance(answer, BaseModel):
            outputs = {name: getattr(answer, name) for name in names}
        else:
            outputs = {names[0]: answer}
        prediction = dspy.Prediction(**outputs, **{RUN: _facts(result)})
        trace = dspy.settings.trace
        if trace is not None:  # Optimizers learn from it which inputs led to which outputs.
            trace.append((self.predict, dict(inputs), prediction))
        return prediction


def _context_fields(
    signature: type[dspy.Signature], given: str | Sequence[str] | None
) -> tuple[str, ...]:
    inputs = list(signature.input_fields)
    if given is None:
        return ("context",) if "context" in inputs else tuple(inputs[:1])
    fields = (given,) if isinstance(given, str) else tuple(given)
    if unknown := [name for name in fields if name not in inputs]:
        listed = ", ".join(inputs)
        raise ConfigError(f"the signature has no input {unknown[0]!r}; inputs: {listed}")
    return fields


def _described(signature: type[dspy.Signature], name: str) -> str:
    extra = signature.fields[name].json_schema_extra
    told = str(extra.get("desc") or "") if isinstance(extra, dict) else ""
    return f"`{name}`" if not told or told == f"${{{name}}}" else f"`{name}` ({told})"


def _shown(name: str, value: Any) -> str:
    """Return an input as a part of the question."""
    text = value if isinstance(value, str) else json.dumps(to_jsonable_python(value, fallback=str))
    if len(text) > MAX_INPUT_CHARS:
        raise ValueError(
            f"the input {name!r} has {len(text):,} characters, but a question has room for "
            f"{MAX_INPUT_CHARS:,}: name it in `context`, so that code can look into it"
        )
    return text


def _context(chosen: dict[str, Any]) -> Any:
    values = {name: _data(value) for name, value in chosen.items()}
    if len(values) == 1:
        return next(iter(values.values()))
    return values or None


def _data(value: Any) -> Any:
    """Return what the engine takes as a context: models and dates get their JSON form."""
    if value is None or isinstance(value, str | bytes | PathLike):
        return value
    return to_jsonable_python(value)


def _answer_model(signature: type[dspy.Signature]) -> type[BaseModel] | None:
    """Return the type of an answer: a record, or the only field's own type; None for a text."""
    fields = {name: field.annotation for name, field in signature.output_fields.items()}
    if len(fields) > 1:
        record: Any = {name: (annotation, ...) for name, annotation in fields.items()}
        config = ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True)
        return create_model("Outputs", __config__=config, **record)
    [annotation] = fields.values()
    of_type: Any = RootModel
    return None if annotation is str else cast("type[BaseModel]", of_type[annotation])


def _cause(error: ModelError, *clients: DspyClient | None) -> Exception:
    """Return what dspy's own model raised: callers of dspy handle that."""
    failures = [client.failure for client in clients if client is not None and client.failure]
    return failures[0] if failures else error


def _facts(result: RunResult) -> dict[str, Any]:
    """Return plain facts about a run, which can be saved with a prediction."""
    return {
        "run_id": result.run_id,
        "stop_reason": result.stop_reason,
        "steps": result.steps,
        "requests": result.usage.total.requests,
        "cost_usd": result.cost_usd,
    }
