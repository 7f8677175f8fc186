"""The methods of the trials: each answers a sample through one endpoint, within limits."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.real_model.samples import TrialSample
from rlm import operators
from rlm.api import RLM
from rlm.errors import ConfigError, RLMError
from rlm.events import CallEnded
from rlm.limits import Limits
from rlm.results import RunResult

__all__ = ["METHODS", "Answered", "Method", "Setup"]

PIECE_CHARS = 6_000
"""How much text `operators` asks about at once when it looks something up."""
_REFERENCE = Path(__file__).with_name("with_reference.py")
_GRACE_SECONDS = 30.0


class Setup(NamedTuple):
    """The endpoint, and what one trial may use."""

    url: str
    model: str
    window_tokens: int
    max_calls: int
    max_tokens: int
    max_seconds: float
    reply_tokens: int
    reference_python: str | None = None
    allow_unsafe: bool = False
    """Run cells on a machine whose kernel lacks what confines them, such as one under gVisor."""


class Answered(NamedTuple):
    """The outcome of a trial; `status` is "answered", "limit", "too large" or "failed".

    Calls and tokens are None where they are unknown.
    """

    answer: str | None
    status: str
    detail: str = ""
    calls: int | None = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0


Method = Callable[[Setup, TrialSample], Coroutine[Any, Any, Answered]]


def _engine(setup: Setup, **options: Any) -> RLM:
    name = f"openai-compatible/{setup.model}"
    limits = Limits(
        max_calls=setup.max_calls,
        max_tokens=setup.max_tokens,
        max_seconds=setup.max_seconds,
        call_seconds=setup.max_seconds,
        step_output_tokens=setup.reply_tokens,
        call_output_tokens=setup.reply_tokens,
    )
    return RLM(
        name,
        variables={"LLM_BASE_URL": setup.url},
        windows={name: setup.window_tokens},
        limits=limits,
        sampling={"temperature": 0},
        sub_sampling={"temperature": 0},
        environment_kwargs={"allow_unsafe": True} if setup.allow_unsafe else None,
        **options,
    )


def _outcome(result: RunResult, *others: RunResult) -> Answered:
    """Return the answer of the first run, and what all of them used."""
    runs = (result, *others)
    totals = [run.usage.total for run in runs]
    status = {"answer": "answered", "limit": "limit", "steps": "limit"}.get(
        result.stop_reason, "failed"
    )
    if result.stop_reason == "error" and result.limit:
        status = "limit"  # The model went on failing until a guard ended the run: no hit.
    if not any(total.requests for total in totals):
        status = "failed"  # The endpoint never replied: waiting for it reached a limit.
    return Answered(
        None if result.answer is None else str(result.answer),
        status,
        result.detail or result.limit or "",
        sum(isinstance(event, CallEnded) for run in runs for event in run.events),
        sum(total.input_tokens for total in totals),
        sum(total.output_tokens for total in totals),
    )


def _by_strategy(strategy: Any) -> Method:
    async def answer(setup: Setup, sample: TrialSample) -> Answered:
        engine = _engine(setup, strategy=strategy)
        try:
            return _outcome(await engine.aask(sample.query, sample.context))
        except ConfigError as error:
            if strategy != "direct":
                raise
            return Answered(None, "too large", str(error))
        except RLMError as error:
            return Answered(None, "failed", f"{type(error).__name__}: {error}")
        finally:
            await engine.aclose()

    return answer


async def _by_operators(setup: Setup, sample: TrialSample) -> Answered:
    """Label and count what is to be counted; look up the rest in pieces, and merge."""
    engine = _engine(setup)
    try:
        if sample.labelling is None:
            return await _looked_up(engine, sample)
        made = sample.labelling
        found = await operators.aclassify(made.items, made.labels, guide=made.guide, model=engine)
        told = _outcome(found.run)
        return told._replace(answer=made.answer(found), detail=found.note)
    except RLMError as error:
        return Answered(None, "failed", f"{type(error).__name__}: {error}")
    finally:
        await engine.aclose()


async def _looked_up(engine: RLM, sample: TrialSample) -> Answered:
    text = sample.context
    pieces = [text[begin : begin + PIECE_CHARS] for begin in range(0, len(text), PIECE_CHARS)]
    found = await operators.aanswer_each(sample.query, pieces, model=engine)
    answers = list(dict.fromkeys(each for each in found if each is not None))
    if len(answers) < 2:
        told = _outcome(found.run)
        return told._replace(answer=answers[0] if answers else None, detail=found.note)
    merged = await operators.amerge(answers, sample.query, model=engine)
    told = _outcome(merged.run, found.run)
    return told._replace(answer=str(merged), detail=f"{found.note}; {merged.note}")


async def _by_reference(setup: Setup, sample: TrialSample) -> Answered:
    """Ask the reference engine, in the interpreter that has it."""
    if setup.reference_python is None:
        return Answered(None, "failed", "pass --reference-python: an interpreter with rlms")
    asked = {
        "url": setup.url,
        "model": setup.model,
        "query": sample.query,
        "context": sample.context,
        "max_seconds": setup.max_seconds,
        "max_tokens": setup.max_tokens,
    }
    process = await asyncio.create_subprocess_exec(
        setup.reference_python,
        str(_REFERENCE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        talk = process.communicate(json.dumps(asked).encode())
        out, errors = await asyncio.wait_for(talk, setup.max_seconds + _GRACE_SECONDS)
    except TimeoutError:
        told = f"did not end within {setup.max_seconds:g} s"
        return Answered(None, "limit", told, None, None, None)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return Answered(**json.loads(out.splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        return Answered(None, "failed", errors.decode(errors="replace")[-300:].strip())


METHODS: dict[str, Method] = {
    "plain": _by_strategy("direct"),
    "operators": _by_operators,
    "mapreduce": _by_strategy("mapreduce"),
    "loop": _by_strategy("rlm"),
    "reference": _by_reference,
}
