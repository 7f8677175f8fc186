"""What earlier executions of a run tree paid for: all of it is counted, and each reply once.

What their failed requests may have cost counts against the limits, but is no usage.
"""

from rlm.limits import NOTHING, Amount, Budget, amount_of
from rlm.messages import KEPT, ReplyKey, Usage
from rlm.protocols import ReplyStore

__all__ = ["PaidEarlier"]


class PaidEarlier:
    """Counts stored replies, both those that are recalled and those that never are.

    Before anything new is paid for, everything stored is counted in the root, whether or not this
    execution comes to it. The runs below count their part when they recall it, or when they end.
    """

    def __init__(self, store: ReplyStore, models: tuple[str, str]) -> None:
        self._store = store
        self._models = models  # of the root run, and of everything below it
        self._ahead: dict[str, dict[str, tuple[ReplyKey, str, Usage]]] = {}
        """By the path of a run: what it has not counted, although the root has."""

    def count_all(self, root: Budget) -> None:
        """Count in the root what is stored and has not been recalled."""
        for key, usage in self._store.take_unrecalled():
            model = self._models[1 if _depth(key) or key.kind == "llm" else 0]
            _count(root, key, model, usage)
            for path in key.run_paths:
                self._ahead.setdefault(path, {})[str(key)] = key, model, usage

    def count(self, budget: Budget, key: ReplyKey, model: str, usage: Usage) -> None:
        """Count a recalled reply in the run with this budget and the runs above."""
        _count(budget, key, model, usage, below_root=self._remove(key))

    def count_rest(self, budget: Budget, path: str) -> None:
        """Count in a run that ends what it has not recalled."""
        self.count_all(budget.root)
        for key, model, usage in list(self._ahead.get(path, {}).values()):
            self._remove(key)
            _count(budget, key, model, usage, below_root=True)

    def count_ended(
        self, budget: Budget, path: str, used: Amount, usage: dict[tuple[str, int], Usage]
    ) -> None:
        """Count what a run below has used that ended in an earlier execution."""
        ahead = list(self._ahead.get(path, {}).values())
        counted = NOTHING
        for key, _, each in ahead:
            self._remove(key)
            counted += amount_of(each)
        budget.charge(used, below_root=True)
        rest = used - counted  # calls
        budget.root.charge(Amount(rest.calls, max(0, rest.tokens), max(0, rest.picodollars)))
        for (model, depth), each in usage.items():
            budget.note_usage(model, depth, each, below_root=bool(ahead))

    def _remove(self, key: ReplyKey) -> bool:
        """Note that a reply is counted everywhere; return whether the root was ahead."""
        removed = [self._ahead.get(path, {}).pop(str(key), None) for path in key.run_paths]
        return any(removed)


def _count(
    budget: Budget, key: ReplyKey, model: str, usage: Usage, *, below_root: bool = False
) -> None:
    budget.charge(amount_of(usage), below_root=below_root)
    if key.kind != KEPT:
        budget.note_usage(model, _depth(key), usage, below_root=below_root)


def _depth(key: ReplyKey) -> int:
    return key.path.count("/")
