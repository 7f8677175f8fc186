"""End a run that its model did not end, with the best answer available.

Candidates, in order: what was submitted last; a variable with a name like `answer`; the reply to
one "answer now" call, paid from what was held back at the start; the last output. An answer of
the wrong shape is skipped.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from rlm import prompts
from rlm._util.text import counted
from rlm.calls.billing import worst_case
from rlm.calls.scope import Scope
from rlm.config import RunConfig
from rlm.engine.decide import WrongShape
from rlm.engine.plain_replies import PlainReply, json_of, read_plain
from rlm.engine.run_state import ReplRunState
from rlm.engine.task import Ending
from rlm.errors import CallRefused, ModelError
from rlm.limits import NOTHING, Amount, Budget, Reservation
from rlm.messages import Message, ModelInfo, Reply, Request, bound_tokens, followed_by
from rlm.prompts import nudges
from rlm.results import AnswerSource, StopReason, Submission

__all__ = ["FinalCall", "ending_by_shape", "ending_of", "give_up"]

LARGEST_INPUT_TOKENS = 12_000
SMALLEST_INPUT_TOKENS = 1_200
SMALLEST_OUTPUT_TOKENS = 64
SHARE = 8
"""The final call holds back at most 1/8 of the budget at the start."""
LARGEST_SHARE = 4
"""If 1/8 is too small for any final call, it holds back up to 1/4."""

ANSWER_NAMES = ("answer", "final_answer", "final", "result", "final_result")


class FinalCall:
    """The "answer now" call, whose cost is reserved at the start of the run."""

    def __init__(self, scope: Scope, config: RunConfig, info: ModelInfo) -> None:
        budget = scope.budget
        size = _planned_size(budget, config, info)
        amount = Amount(tokens=sum(size), picodollars=info.price.bound(*size) if info.price else 0)
        if _shares(budget, amount) < LARGEST_SHARE:
            raise _no_room(budget, amount)
        self.input_tokens, self.output_tokens = size
        self._info = info
        self._scope = scope
        self.held: Reservation = budget.hold(amount)

    def request(self, config: RunConfig, messages: Sequence[Message], text: str) -> Request:
        """Return the whole history with the question below it, or as much of its end as fits."""
        whole = self._request(config, followed_by(messages, text))
        if self._fits(whole):
            return whole
        for size in range(LARGEST_INPUT_TOKENS, self.input_tokens, -SMALLEST_INPUT_TOKENS):
            newest = self._request(config, (_digest(messages, text, size),))
            if self._fits(newest):
                return newest
        return self._request(config, (_digest(messages, text, self.input_tokens),))

    def _fits(self, request: Request) -> bool:
        """Whether a request fits the window, what is held back and what is left."""
        need = worst_case(request, self._info, self._scope.reported)
        held = self.held.amount if self.held.open else NOTHING
        room = self._scope.budget.room() + held
        window = self._info.window_tokens
        fits_window = window is None or need.tokens <= window
        return fits_window and need.tokens <= room.tokens and need.picodollars <= room.picodollars

    def _request(self, config: RunConfig, messages: tuple[Message, ...]) -> Request:
        return Request(
            model=config.model,
            messages=messages,
            max_output_tokens=self.output_tokens,
            sampling=config.sampling,
        )


def _planned_size(budget: Budget, config: RunConfig, info: ModelInfo) -> tuple[int, int]:
    """Return input and output tokens of the final call, scaled down to its share."""
    usual = LARGEST_INPUT_TOKENS, config.limits.call_output_tokens
    cost = info.price.bound(*usual) if info.price else 0
    share = min(1.0, _shares(budget, Amount(tokens=sum(usual), picodollars=cost)) / SHARE)
    smallest = SMALLEST_INPUT_TOKENS, min(SMALLEST_OUTPUT_TOKENS, usual[1])
    return max(smallest[0], int(usual[0] * share)), max(smallest[1], int(usual[1] * share))


def _no_room(budget: Budget, amount: Amount) -> CallRefused:
    """Say which limit has no room for even the smallest final call, and how much is enough."""
    needed = "a step and a final answer need"
    if budget.room().tokens < LARGEST_SHARE * amount.tokens:
        text = f"{needed} {SHARE * amount.tokens:,} tokens (max_tokens)"
        return budget.refuse(text, "tokens")
    enough_usd = math.ceil(SHARE * amount.picodollars / 10**6) / 10**6
    return budget.refuse(f"{needed} ${enough_usd:.6f} (max_cost_usd)", "cost_usd")


def _shares(budget: Budget, amount: Amount) -> float:
    """Return how many times this amount fits into what is left."""
    room = budget.room()
    by_money = room.picodollars / amount.picodollars if amount.picodollars else math.inf
    return min(room.tokens / amount.tokens, by_money)


def _digest(messages: Sequence[Message], text: str, max_tokens: int) -> Message:
    """Return the newest messages that fit, oldest first, above the question."""
    question = Message("user", text)
    left = max_tokens - bound_tokens((question,))
    if left < 0:
        return Message("user", _cut_bytes(text, max_tokens - 16))
    kept: list[str] = []
    for message in reversed(messages[1:]):
        part = f"[{message.role}]\n{message.content}\n\n"
        size = len(part.encode())
        if size > left:
            kept.append(_cut_bytes(part, left))
            break
        kept.append(part)
        left -= size
    return Message("user", "".join(reversed(kept)) + text)


def _cut_bytes(text: str, size: int) -> str:
    """Return the end of a text, at most `size` bytes."""
    return text.encode()[-size:].decode("utf-8", "ignore") if size > 0 else ""


async def give_up(
    run: ReplRunState,
    final: FinalCall | None,
    why: StopReason,
    detail: str,
    limit: str | None = None,
) -> Ending:
    """End with the best answer available; `final` is None if no more calls may be made."""
    refused: tuple[Submission, str] | None = None
    async with aclosing(_candidates(run, final, why, detail)) as candidates:
        async for submission, source in candidates:
            objection = await run.objection(submission)
            if objection is None:
                return Ending(why, source, submission, limit, detail)
            refused = refused or (submission, objection.problem)
    ending = Ending(why, "none", None, limit, detail)
    return ending if refused is None else ending.without_answer(*refused)


async def ending_of(run: ReplRunState, final: FinalCall | None, error: BaseException) -> Ending:
    """Return the ending for a limit or a requested stop; raise any other error."""
    if (limit := run.limit_reached(error)) is not None:
        return await give_up(run, final, "limit", str(error), limit)
    if run.was_stopped(error):
        return await give_up(run, None, "cancelled", "the run was cancelled")
    cancelled = isinstance(error, asyncio.CancelledError)
    why: StopReason = "cancelled" if cancelled else "error"
    run.end(Ending(why, "none", detail=str(error) or type(error).__name__), failed=True)
    raise error


def ending_by_shape(run: ReplRunState, found: WrongShape) -> Ending:
    """Return the ending for an answer that has the same wrong shape again and again."""
    times = run.progress.same_mistakes
    detail = f"the answer had the wrong shape {counted(times, 'time')} in a row: {found.problem}"
    return Ending("error", "none", None, "wrong_shape", detail, found.submission)


async def _candidates(
    run: ReplRunState, final: FinalCall | None, why: StopReason, reason: str
) -> AsyncGenerator[tuple[Submission, AnswerSource], None]:
    """Yield possible answers, the best first; a stopped run never offers raw output."""
    if run.progress.submitted is not None:
        yield run.progress.submitted, "submitted"
    if (found := await _variable(run)) is not None:
        yield found, "variable"
    asked = await _ask_for_answer(run, final, reason) if final and run.scope.step > 0 else None
    if asked is not None:
        yield asked, "asked"
    if run.progress.last_output and why != "cancelled":
        yield Submission(run.progress.last_output, "last_output"), "last_output"


async def _ask_for_answer(run: ReplRunState, final: FinalCall, reason: str) -> Submission | None:
    """Return the reply to "answer now"; if it is code, ask again."""
    messages = tuple(run.history.messages)
    question = prompts.answer_now(run.task.query, reason)
    reply = await _reply(run, final, messages, question)
    if reply is None:
        return None
    plain = read_plain(reply, run.session.variables)
    answer = await _of_its_type(run, reply) or await _meant_by(run, plain)
    if answer is not None or not plain.is_code:
        return answer
    said = Message("assistant", reply.text or "(a tool call)")
    reply = await _reply(run, final, (*followed_by(messages, question), said), nudges.NO_CODE_NOW)
    again, answer = PlainReply(), None
    if reply is not None:
        again = read_plain(reply, run.session.variables)
        answer = await _of_its_type(run, reply) or await _meant_by(run, again)
    text = again.text or plain.text  # what was written beside the code
    return answer or (Submission(text, "asked") if text else None)


async def _of_its_type(run: ReplRunState, reply: Reply) -> Submission | None:
    """Return a reply in JSON that has the type of the answer, even if it looks like code."""
    text = json_of(reply) if run.task.objection_to is not None else ""
    if not text:
        return None
    submission = Submission(text, "asked", text)
    return submission if await run.objection(submission) is None else None


async def _meant_by(run: ReplRunState, plain: PlainReply) -> Submission | None:
    """Return the answer in a reply, or in the variable that it names."""
    if plain.variable:
        text = await run.session.lookup(plain.variable)
        if text is not None and text.strip():
            return Submission(text, plain.variable)
    if plain.is_code or not plain.text:
        return None
    return Submission(plain.text, "asked", plain.json)


async def _reply(
    run: ReplRunState, final: FinalCall, messages: tuple[Message, ...], text: str
) -> Reply | None:
    """Return a reply to the final call; None if the budget or the model does not allow it."""
    request = final.request(run.config, messages, text)
    held = final.held if final.held.open else None
    try:
        return await run.calls.run_request(
            run.scope, request, purpose="final", new_messages=1, held=held
        )
    except (ModelError, CallRefused):
        return None  # calls.py has recorded it; the next candidate follows


async def _variable(run: ReplRunState) -> Submission | None:
    for name in (run.config.guards.auto_finalize_var, *ANSWER_NAMES):
        if name is not None and name in run.session.own_variables:
            text = await run.session.lookup(name)
            if text is not None and text.strip():
                return Submission(text, name)
    return None
