"""The names that a cell finds in the REPL, a published interface: data for prompts and docs."""

from __future__ import annotations

__all__ = ["REPL_NAMES", "ReplName"]


class ReplName:
    """One published name. `restored`: if a cell rebinds it, the next cell finds the original.

    `yields`: a tool of that name replaces it, and a variable of that name belongs to the user.
    """

    __slots__ = ("description", "name", "restored", "usage", "yields")

    def __init__(
        self, usage: str, description: str, restored: bool = False, yields: bool = False
    ) -> None:
        self.name = usage.partition("(")[0].partition("[")[0]
        self.usage = usage
        self.description = description
        self.restored = restored
        self.yields = yields


REPL_NAMES = (
    ReplName("context", "the payload: a real str, list or dict"),
    ReplName("context_0", "the original payload, whatever `context` is rebound to", restored=True),
    ReplName("P", "the same payload under a short name"),
    ReplName("ctx", "helper over the payload: slice find grep chunk lines documents describe"),
    ReplName("peek(n=2000)", "the first n characters of the payload"),
    ReplName("tail(n=2000)", "the last n characters of the payload"),
    ReplName("lenP()", "the payload's length in characters"),
    ReplName(
        "llm_query(prompt, model=None, images=None)",
        "one plain model call, returns a str; `images`: PNG, JPEG, GIF or WebP bytes, or names of "
        "the context's pictures; `schema=`: a checked value instead of the str",
        restored=True,
    ),
    ReplName(
        "llm_query_batched(prompts, model=None, images=None)",
        "many model calls at once, results in order; a failed item does not affect the others; "
        "`images`: a list for each prompt",
        restored=True,
    ),
    ReplName(
        "llm_batch(prompts, model=None, images=None)",
        "the same as llm_query_batched",
        restored=True,
    ),
    ReplName(
        "rlm_query(prompt, context=None, model=None)",
        "a child run with its own fresh REPL; only its answer comes back",
        restored=True,
    ),
    ReplName(
        "rlm_query_batched(prompts, contexts=None, model=None)",
        "many child runs at once, results in order",
        restored=True,
    ),
    ReplName(
        "llm_query_json(prompt, model=None, images=None)",
        "a model call, reply parsed as JSON",
        restored=True,
    ),
    ReplName(
        "map_query(question, chunks, model=None)",
        "the same question about every chunk, replies in order",
        restored=True,
    ),
    ReplName(
        'classify(items, labels, guide="")',
        "the label of every item, in order, checked where the model is unsure",
        yields=True,
    ),
    ReplName("where(items, condition)", "the items that meet a condition", yields=True),
    ReplName(
        "extract(items, schema)",
        'a dict for every item; schema: {"name": "str", "amount": "float"} or a JSON schema',
        yields=True,
    ),
    ReplName(
        "answer_each(question, items)",
        "the answer of every item, None where it has none",
        yields=True,
    ),
    ReplName(
        "pairs(left, right, condition)",
        "the pairs (left item, right item) that meet a condition",
        yields=True,
    ),
    ReplName("rank(items, criterion, k)", "the k best items, best first", yields=True),
    ReplName("merge(texts, question)", "one answer from many texts", yields=True),
    ReplName("vote(answers)", "the most frequent answer"),
    ReplName("budget()", "what is left: tokens, money, seconds, calls"),
    ReplName(
        "cite(start, end=None, name=None)",
        "cite a place that supports the answer, by offsets or by a verbatim quote; returns its "
        "text",
        restored=True,
    ),
    ReplName("SHOW_VARS()", "your variables as name: type[length]", restored=True),
    ReplName("FINAL(value)", "submit a value as the answer", restored=True),
    ReplName('FINAL_VAR("name")', "submit a variable as the answer", restored=True),
    ReplName("SUBMIT(value)", "the same as FINAL", restored=True),
    ReplName(
        "submit_answer(answer=None, variable_name=None)", "the same as FINAL or FINAL_VAR", True
    ),
    ReplName("answer", 'set answer["content"], then answer["ready"] = True, to submit it'),
    ReplName("call_tool(name, **arguments)", "call a registered tool", restored=True),
    ReplName("history", "in chats: the turns so far"),
    ReplName("FailedReply", "the type of a failed item in a batch; it has .failed and .reason"),
    ReplName("CallFailed", "raised by a model call that failed or was refused"),
    ReplName("ToolFailed", "raised by a tool call that failed"),
    ReplName("QueryFailed", "raised by a query of a table that failed"),
)
