"""The texts for models: `.md` templates and the pure functions that fill them in."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rlm._util.text import counted
from rlm.config import WEAK, RunConfig
from rlm.messages import ModelInfo, ToolSpec
from rlm.worker.ctx import METHODS
from rlm.worker.repl_names import REPL_NAMES

__all__ = [
    "FIXED_QUERY",
    "NATIVE_TOOLS",
    "answer_now",
    "call_chars",
    "compact",
    "compacted",
    "direct_prompt",
    "first_message",
    "kind_prompt",
    "map_prompt",
    "prepared_lines",
    "reduce_prompt",
    "system_prompt",
    "tiny_map_prompt",
    "tiny_reduce_prompt",
]

FIXED_QUERY = "The task is in the variable `context`: read it first, then do what it asks."
"""The query of a run that has only a context, as in `completion(task)`."""

NATIVE_TOOLS = (
    ToolSpec(
        name="execute_python",
        description="Run Python code in the REPL and return what it prints.",
        parameters={
            "type": "object",
            "properties": {"code": {"type": "string"}},
            "required": ["code"],
        },
    ),
    ToolSpec(
        name="submit_answer",
        description="End the run with an answer, or with the value of a REPL variable.",
        parameters={
            "type": "object",
            "properties": {"answer": {"type": "string"}, "variable_name": {"type": "string"}},
        },
    ),
)

UNKNOWN_WINDOW_TOKENS = 32_000
CHARS_A_TOKEN = 2
"""Half the usual four, to allow for dense text and the reply."""

LARGEST_CALL_CHARS = 400_000
NAMES_FOR_SMALL_MODELS = ("context", "ctx", "llm_query", "map_query")
NAMES_FOR_ALL = ("context", "ctx", "llm_query", "llm_query_batched", "budget")
RECURSIVE_NAMES = ("rlm_query", "rlm_query_batched")
"""Other names work too, but every name in a prompt costs tokens in every request."""
METHODS_FOR_SMALL_MODELS = ("grep", "chunk", "sql")
MAX_PREPARED = 30
GRANTING = (
    '`rlm_query(..., tools=["name"])` gives a child only these tools; without it, all of them'
)


@cache
def _template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.md").read_text("utf-8")


def fill(name: str, **values: object) -> str:
    """Return a template with its `{{slots}}` filled literally: values may contain braces."""
    head, *rest = _template(name).split("{{")
    filled = [head]
    for piece in rest:
        slot, _, text = piece.partition("}}")
        filled += [str(values[slot]), text]
    return "".join(filled)


def call_chars(info: ModelInfo) -> int:
    """Return how many characters one prompt to this model may hold."""
    window = info.window_tokens or UNKNOWN_WINDOW_TOKENS
    return min(LARGEST_CALL_CHARS, window * CHARS_A_TOKEN)


def system_prompt(
    config: RunConfig,
    root: ModelInfo,
    sub: ModelInfo,
    depth: int,
    tools: tuple[str, ...] = (),
    *,
    grants: bool = False,
    pictures: bool = False,
    source: str = "",
) -> str:
    """Return the instructions of a run, by the profile of its model.

    `grants`: there are tools that children may have, among which the model can choose. `pictures`:
    the context has pictures, so the prompt shows that calls take them. `source`: the kind of data
    that stays on the host, tables or a corpus.
    """
    if config.system_prompt is not None:
        return config.system_prompt
    small = (config.profile or root.profile) in WEAK
    size = call_chars(sub)
    recursive = not small and depth + 1 < config.limits.max_depth
    names = _rows(small, recursive, _methods(source))
    if not pictures:
        names = [_without_images(row) for row in names]
    if not _models(config):
        names = [row.replace(", model=None", "") for row in names]
    if grants and recursive:
        tools = (*tools, GRANTING)
    return fill(
        f"system{'_small' if small else ''}{f'_{source}' if source else ''}",
        names="\n".join(f"- {row}" for row in (*names, *tools)),
        output_chars=f"{config.limits.output_chars:,}",
        cell_seconds=f"{config.limits.cell_seconds:g}",
        models=_models(config),
        decide=fill("decide", recursion=_recursion(config, depth)) if config.orchestrator else "",
        call_chars=f"{size:,}",
        small_call_chars=size // 2,
    ).rstrip("\n")


def first_message(
    query: str,
    description: str,
    *,
    look: tuple[str, str] = ("", ""),
    prologue: str = "",
    max_steps: int,
    protocol: str = "fences",
) -> str:
    """Return the task for the model: the query, the structure of the context, and a first look.

    `look` is the beginning and the end of the context; if empty, the message shows none of it.
    """
    shown = "".join(f"\n{part}\n" for part in (_look(*look), prologue) if part)
    how = f"You have {counted(max_steps, 'step')}."
    if protocol == "tools":
        how += " Act through the tools execute_python and submit_answer."
    return fill("first", query=query, description=description, preview=shown, steps=how).rstrip()


def _look(head: str, tail: str) -> str:
    if not tail:
        return f"All of it:\n{head}" if head else ""
    return (
        f"Its first {counted(len(head), 'character')}:\n{head}\n"
        f"…\nIts last {counted(len(tail), 'character')}:\n{tail}"
    )


def answer_now(query: str, reason: str) -> str:
    return fill("answer_now", query=query, reason=reason).rstrip()


def compact() -> str:
    return _template("compact").rstrip()


def compacted(variables: tuple[str, ...]) -> str:
    return fill("compacted", variables=", ".join(variables) or "none").rstrip()


def kind_prompt(query: str, preview: str) -> str:
    return fill("kind", query=query, preview=preview).rstrip("\n")


def map_prompt(query: str, chunk: str, number: int, count: int, kind: str = "") -> str:
    """Return the prompt to read a piece; `kind` is the kind of answer, if it has its own prompt."""
    name = f"map_{kind}" if kind else "map"
    return fill(name, query=query, chunk=chunk, number=number, count=count).rstrip("\n")


def reduce_prompt(query: str, notes: str, kind: str = "") -> str:
    return fill(f"reduce_{kind}" if kind else "reduce", query=query, notes=notes).rstrip("\n")


def tiny_map_prompt(query: str, chunk: str) -> str:
    """Return the prompt for models that answer NOT FOUND to everything if allowed to."""
    return fill("map_tiny", query=query, chunk=chunk).rstrip("\n")


def tiny_reduce_prompt(query: str, notes: str) -> str:
    return fill("reduce_tiny", query=query, notes=notes).rstrip("\n")


def direct_prompt(query: str, context: str) -> str:
    return fill("direct", query=query, context=context).rstrip("\n")


def prepared_lines(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the prompt says about the variables that `setup_code` left, a line each."""
    shown = [f"`{name}`: prepared for you ({what})" for name, what in variables.items()]
    left = len(shown) - MAX_PREPARED
    more = [f"{left} more prepared variables: see `SHOW_VARS()`"] if left > 0 else []
    return (*shown[:MAX_PREPARED], *more)


def _methods(source: str) -> tuple[tuple[str, str], ...]:
    """Return what `ctx` offers over this kind of data; few runs have other data than texts."""
    if source == "corpus":
        from rlm.worker import corpora

        return corpora.METHODS
    if source == "tables":
        from rlm.worker import tables

        return tables.METHODS
    return METHODS


def _rows(small: bool, recursive: bool, methods: tuple[tuple[str, str], ...]) -> list[str]:
    """Return a line about each name of the REPL, from the worker's own lists."""
    shown = {*(NAMES_FOR_SMALL_MODELS if small else NAMES_FOR_ALL)}
    shown |= {*RECURSIVE_NAMES} if recursive else set()
    rows = []
    for name in REPL_NAMES:
        if name.name == "ctx":
            rows += [
                f"`ctx.{usage}`: {what}"
                for usage, what in methods
                if not small or usage.partition("(")[0] in METHODS_FOR_SMALL_MODELS
            ]
        elif name.name in shown:
            rows.append(f"`{name.usage}`: {name.description}")
    return rows


def _without_images(row: str) -> str:
    """Return a line about a call without `images=`, which only pictures need."""
    return row.replace(", images=None", "").partition("; `images`")[0]


def _models(config: RunConfig) -> str:
    others = [m for m in dict.fromkeys(config.models) if m != config.sub_model]
    if not others:
        return ""
    return " Calls take `model=` from: " + ", ".join([config.sub_model, *others]) + "."


def _recursion(config: RunConfig, depth: int) -> str:
    if depth + 1 >= config.limits.max_depth:
        return ""
    return (
        "4. A piece is itself a task of several steps: start a child, "
        "`rlm_query(task, context=piece)`.\n"
    )
