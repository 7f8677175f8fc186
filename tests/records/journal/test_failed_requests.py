"""What failed requests may have cost is in the journal, and counts when the run continues."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, Limits, ModelError, ScriptedClient
from rlm.limits import Amount, Budget
from rlm.messages import PICODOLLARS, Price, Reply, Request
from rlm.records.journal import Archive, Places, fork
from rlm.records.journal.archive import counted_in, paid_in

RUN_ID = "20261115-120000-000-abcdef01"
PRICE = Price(1.0, 2.0)
CALLS = "```repl\nprint([llm_query('one'), llm_query('two')])\n```"
CHILD = "```repl\nprint(rlm_query('What?', 'a text'))\n```"
DONE = "```repl\nFINAL(1)\n```"
CUT = "cut off"
DOWN = ModelError("down", status=400)


class Cut(ScriptedClient):
    """Where its script says `CUT`, a request fails after it was sent; `kept` is their bound."""

    def __init__(self, script: list[Any], *, retryable: bool = False) -> None:
        super().__init__(script, price=PRICE)
        self.kept = Amount()
        self.retryable = retryable

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        reply = await super().complete(request, timeout_seconds=timeout_seconds)
        if reply.text != CUT:
            return reply
        sent, written = request.bound_tokens, request.max_output_tokens
        self.kept += Amount(0, sent + written, PRICE.bound(sent, written))
        raise ModelError(
            CUT,
            retryable=self.retryable,
            ambiguous=True,
            retry_after_seconds=0.0 if self.retryable else None,
        )


async def executed(folder: Path, client: ScriptedClient, **options: Any) -> tuple[Any, Budget]:
    """Execute the run; return its result or error, and the budget that it drew on."""
    budget = Budget.shared()
    one = RLM(client, journal=folder, **options)
    result: Any
    try:
        result = await one.aask("?", "abc", run_id=RUN_ID, budget=budget)
    except ModelError as error:
        result = error
    finally:
        await one.aclose()
    return result, budget


def journal_in(folder: Path) -> Path:
    return Places(folder).journal_of(RUN_ID)


async def test_every_execution_counts_what_earlier_ones_may_have_cost(tmp_path: Path) -> None:
    kept = Amount()
    for _ in range(3):
        client = Cut([CUT])
        _, budget = await executed(tmp_path, client)
        kept += client.kept
        assert (budget.kept, budget.used) == (kept, kept)
    assert counted_in(journal_in(tmp_path)) == kept
    result, budget = await executed(tmp_path, Cut([DONE]))
    assert (result.answer, budget.kept) == ("1", kept)
    assert result.usage.total.requests == 1, "only replies are usage"
    assert budget.used.tokens == kept.tokens + result.usage.total.total_tokens


async def test_the_limit_holds_over_all_executions(tmp_path: Path) -> None:
    limits = Limits(max_cost_usd=0.04)
    kept = Amount()
    for number in range(8):
        client = Cut([CUT])
        outcome, _ = await executed(tmp_path, client, limits=limits)
        kept += client.kept
        assert 0 < kept.picodollars <= 0.04 * PICODOLLARS, f"execution {number}"
    assert outcome.limit == "cost_usd"


@pytest.mark.parametrize("script", [[CALLS, CUT, "1", "2"], [CHILD, CUT, DONE], [CUT, "Hm."]])
async def test_failed_attempts_below_a_run_are_counted_once(
    tmp_path: Path, script: list[Any]
) -> None:
    """The first attempt at a call, at a child's step or at a step fails, the second succeeds."""
    client = Cut([*script, DOWN], retryable=True)
    _, before = await executed(tmp_path, client, max_depth=2)
    assert before.kept == client.kept != Amount()
    result, after = await executed(tmp_path, Cut([DONE, DONE, DONE]), max_depth=2)
    assert (result.answer, after.kept) == ("1", client.kept)
    stored, again = await executed(tmp_path, Cut([]), max_depth=2)
    assert (stored.answer, again.used.tokens) == ("1", after.used.tokens)
    assert again.kept == client.kept


async def test_lists_show_what_was_reported(tmp_path: Path) -> None:
    _, budget = await executed(tmp_path, Cut(["Hm.", CUT]))
    path = journal_in(tmp_path)
    assert paid_in(path).requests == 1
    assert paid_in(path).total_tokens == counted_in(path).tokens - budget.kept.tokens


async def test_a_fork_pays_for_no_failed_request(tmp_path: Path) -> None:
    await executed(tmp_path, Cut([CUT, "Hm.", "Hm.", CUT], retryable=True))
    archive = Archive(Places(tmp_path))
    (run,) = archive.places.listed()
    new = fork(archive, run, 2)
    assert counted_in(archive.places.journal_of(new)) == Amount()


async def test_both_attempts_of_a_hedged_call_count_when_the_run_continues(tmp_path: Path) -> None:
    both = asyncio.Event()

    class BothCut(Cut):
        """Both attempts fail after they were sent, once both of them were."""

        attempts = 0

        async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
            if request.messages[-1].content == "one":
                self.attempts += 1
                if self.attempts == 2:
                    both.set()
                await both.wait()
                raise ModelError(CUT, ambiguous=True)
            return await super().complete(request, timeout_seconds=timeout_seconds)

    call = "```repl\ntry: llm_query('one')\nexcept Exception as error: print(error)\n```"
    client = BothCut([call, DOWN])
    _, budget = await executed(tmp_path, client, hedge_after_seconds=0.01)
    assert client.attempts == 2
    assert budget.kept == counted_in(journal_in(tmp_path)) - paid(budget)
    _, again = await executed(tmp_path, BothCut([DONE]))
    assert again.kept == budget.kept


def paid(budget: Budget) -> Amount:
    return budget.used - budget.kept - Amount(calls=budget.used.calls)
