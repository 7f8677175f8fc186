"""The cells the offline model writes: the source of its search, and a line that calls it."""

import ast
from functools import cache
from importlib.resources import files

from rlm.clients.offline_query import plan_for

__all__ = ["SUBMISSION", "search_cell", "submit_cell", "task_cell"]

MODULES = ("offline_text", "offline_plan", "offline_search")
SUBMISSION = "FINAL(conclude(offline_plan, offline_hits, llm_query"
"""How the submitting cell begins, by which the model knows its own."""


def search_cell(question: str) -> str:
    """Search the context and print the best passages; the plan and the hits stay as variables."""
    plan = repr(plan_for(question)).replace("`", "\\x60")  # a fence in it would end the cell
    return f"{_library()}\n\noffline_plan = {plan}\noffline_hits = report(offline_plan, context)"


def task_cell() -> str:
    """Print the task, for a run whose context is its task."""
    return f"{_library()}\n\ntask_of(context)"


def submit_cell(*, with_child: bool = False) -> str:
    """Have the best passage read, by a child run if there may be one, and submit what comes."""
    return SUBMISSION + (", rlm_query))" if with_child else "))")


@cache
def _library() -> str:
    return "\n\n\n".join(_standalone(name) for name in MODULES)


def _standalone(name: str) -> str:
    """A module's source without its imports from rlm, which the sandbox does not have."""
    source = files("rlm.clients").joinpath(f"{name}.py").read_text("utf-8")
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlm."):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines).strip()
