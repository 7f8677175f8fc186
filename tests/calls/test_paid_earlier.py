"""Whatever an execution recalls, in whatever order, each reply is counted once in every run."""

import contextlib
import itertools
import random
from collections.abc import Generator
from typing import TypeAlias, cast

import pytest

from rlm.calls.paid_earlier import PaidEarlier
from rlm.limits import Amount, Budget, Limits, amount_of
from rlm.messages import ReplyKey, Usage
from rlm.protocols import ReplyStore

Plan: TypeAlias = "list[int | Plan]"
"""What the cells of a run do: make a number of calls, or start a child run with its own plan."""

Spent = tuple[Amount, dict[tuple[str, int], Usage]]


class Killed(Exception):
    """The process is gone."""


class Stored:
    """What is in a journal: the replies, and what runs that have ended used."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[ReplyKey, Usage]] = {}
        self.ended: dict[str, Spent] = {}
        self.numbers = itertools.count(1)

    def paid(self, path: str) -> int:
        """Return the tokens paid for in a run and below it."""
        return sum(
            usage.total_tokens for key, usage in self.replies.values() if path in key.run_paths
        )


class Execution:
    """One execution, which is killed before its request number `life`."""

    def __init__(self, stored: Stored, order: random.Random, life: int) -> None:
        self.stored = stored
        self.order = order
        self.life = life
        self.root = Budget(Limits())
        store = cast("ReplyStore", self)  # Only `take_unrecalled` is used.
        self.paid_earlier = PaidEarlier(store, ("root", "sub"))
        self._unrecalled = dict(stored.replies)
        self._recalled_runs: set[str] = set()

    def take_unrecalled(self) -> list[tuple[ReplyKey, Usage]]:
        left = [
            each
            for each in self._unrecalled.values()
            if not self._recalled_runs.intersection(each[0].run_paths)
        ]
        self._unrecalled.clear()
        return left

    def run(self, plan: Plan) -> None:
        for _ in self._run(plan, "root", self.root):
            pass

    def _run(self, plan: Plan, path: str, budget: Budget) -> Generator[None, None, None]:
        active = []
        for number, part in enumerate(plan):
            if isinstance(part, int):
                active.append(self._calls(part, path, number, budget))
            else:
                active.append(self._child(part, f"{path}/{number}", budget))
        while active:
            one = self.order.choice(active)
            yield
            if next(one, one) is one:
                active.remove(one)
        self.paid_earlier.count_rest(budget, path)

    def _child(self, plan: Plan, path: str, parent: Budget) -> Generator[None, None, None]:
        budget = parent.child(Limits())
        if path in self.stored.ended:
            self._recalled_runs.add(path)
            self.paid_earlier.count_ended(budget, path, *self.stored.ended[path])
            return
        yield from self._run(plan, path, budget)
        self.stored.ended[path] = budget.used, dict(budget.usage)

    def _calls(
        self, count: int, path: str, number: int, budget: Budget
    ) -> Generator[None, None, None]:
        """Make some calls; in some executions, the last one is another one."""
        for each in range(count):
            is_new = each == 2 and self.order.random() < 0.5
            digest = f"{number}.{next(self.stored.numbers) if is_new else each}"
            key = ReplyKey(path, digest, 0)
            depth = path.count("/")
            if (known := self.stored.replies.get(str(key))) is not None:
                self._unrecalled.pop(str(key), None)
                self.paid_earlier.count(budget, key, "sub", known[1])
            else:
                self.paid_earlier.count_all(self.root)
                yield
                self.life -= 1
                if self.life < 0:
                    raise Killed
                usage = Usage(input_tokens=next(self.stored.numbers), requests=1)
                self.stored.replies[str(key)] = key, usage
                yield
                for node in budget.chain:
                    node.used += amount_of(usage)
                budget.note_usage("sub", depth, usage)
            yield


def plan_of(order: random.Random, levels: int) -> Plan:
    """Return parts in any order: calls, and child runs of fewer levels."""
    return [
        plan_of(order, levels - 1) if levels and order.random() < 0.5 else order.randrange(4)
        for _ in range(order.randrange(1, 5))
    ]


@pytest.mark.parametrize("first", range(0, 1_000, 100))
def test_each_reply_is_counted_once_however_often_a_run_is_killed(first: int) -> None:
    for seed in range(first, first + 100):
        order = random.Random(seed)
        plan, stored = plan_of(order, 2), Stored()
        for _ in range(order.randrange(6)):
            with contextlib.suppress(Killed):
                Execution(stored, order, order.randrange(12)).run(plan)
        last = Execution(stored, order, 1_000_000)
        last.run(plan)
        check(last.root.used, last.root.usage, stored.paid("root"))
        for path, (used, usage) in stored.ended.items():
            check(used, usage, stored.paid(path))


def check(used: Amount, usage: dict[tuple[str, int], Usage], paid: int) -> None:
    assert used.tokens == paid
    assert sum(each.total_tokens for each in usage.values()) == paid
