"""Operators that the engine owns: one call that asks models about many items.

Code that a model writes around `llm_query` gets the bookkeeping wrong: items without a reply,
reworded labels, duplicates, budgets. Here it is done once: `running` checks the arguments,
`operation` packs prompts and asks until every item has a result, `reading` reads the replies.
"""

from typing import TYPE_CHECKING

from rlm._util.lazy import on_demand

if TYPE_CHECKING:
    from rlm.engine.operators.running import OPERATORS, OperatorCall, OperatorResult, run_operator

__all__ = ["OPERATORS", "OperatorCall", "OperatorResult", "run_operator"]

__getattr__, __dir__ = on_demand(__name__, dict.fromkeys(__all__, "running"))
