"""One-line corrections for the model. Each says what was wrong and what to do."""

__all__ = [
    "CONFIRM_FINAL",
    "EMPTY_REPLY",
    "LOOK_AGAIN",
    "NO_ACTION",
    "NO_CODE_NOW",
    "SAME_CODE",
    "SAME_ERROR",
    "STUCK",
    "TIMED_OUT",
    "UNTOUCHED_CONTEXT",
    "need_repl",
    "need_steps",
    "need_subcall",
    "session_lost",
    "session_restored",
    "unknown_variable",
    "variables_lost",
    "wrong_shape",
]

NO_ACTION = (
    "Your reply had neither a code block nor a final answer. Write Python in a ```repl block to "
    "look into `context`, or end with FINAL(value) in a block."
)
EMPTY_REPLY = (
    "Your reply was empty. Write Python in a ```repl block, or end with FINAL(value) in a block."
)
CONFIRM_FINAL = (
    "Your final answer was written before you saw the output above, and contains something that "
    "the output does not. Check it against the output, then submit it again, corrected if needed."
)
LOOK_AGAIN = (
    "Your answer is neither in any output nor in `context`. Look for it with code, then submit "
    "what you find. If you worked it out yourself, submit it again."
)
SAME_CODE = (
    "You have run the same code several times; it will not produce anything new. Do something "
    "else: look at another part of `context`, or ask `llm_query_batched` over its pieces."
)
SAME_ERROR = (
    "The same error came back several times. Print the type and a small part of the values "
    "involved, and try another way."
)
TIMED_OUT = (
    "The variables are as the block left them. Search with ctx.grep(...), ctx.find(...) or "
    "str.find instead of a broad regular expression such as `.*x.*`, or do less in one block."
)
UNTOUCHED_CONTEXT = (
    "Your code has not looked at `context` yet, and the answer is in there. Begin with "
    "print(context[:500]) or ctx.grep(...)."
)

STUCK = {
    SAME_CODE: "the model ran the same code again and again",
    SAME_ERROR: "the model got the same error again and again",
    UNTOUCHED_CONTEXT: "the model did not look into the context",
}
"""The same facts for people, when a hint did not help."""

NO_CODE_NOW = (
    "That was code, but no more code will run. Write the answer itself, in plain words. If the "
    "query asks for code, put a sentence before it."
)


def need_repl() -> str:
    return "Look into `context` with code in a ```repl block before you answer."


def need_subcall() -> str:
    return "Make at least one model call (`llm_query` or `llm_query_batched`) before you answer."


def need_steps(wanted: int, done: int) -> str:
    return f"It is too early to answer (step {done} of at least {wanted}). Verify what you have."


def unknown_variable(name: str, known: tuple[str, ...]) -> str:
    shown = ", ".join(known[:40]) or "none"
    return f"There is no variable named {name!r} in the REPL. Variables: {shown}."


def wrong_shape(problem: str) -> str:
    return f"Your answer does not have the right shape: {problem}. Submit it again."


def session_lost(reason: str, lost: tuple[str, ...]) -> str:
    what = f"These variables are lost: {', '.join(lost[:40])}." if lost else "No variable was lost."
    return (
        f"The REPL stopped ({reason}) and was started again; `context` is still available. {what} "
        "Rebuild what you need, and avoid what stopped it."
    )


def session_restored(reason: str, lost: tuple[str, ...]) -> str:
    missing = f", except that these are lost: {', '.join(lost[:40])}" if lost else ""
    return (
        f"The REPL stopped ({reason}). Your variables are as they were before this cell{missing}. "
        "What this cell did was undone; try another way."
    )


def variables_lost(lost: tuple[str, ...]) -> str:
    """Return the note for a chat that was saved and loaded again."""
    more = f" and {len(lost) - 40:,} more" if len(lost) > 40 else ""
    return (
        "This conversation continues in a new REPL. These variables could not be carried over: "
        f"{', '.join(lost[:40])}{more}. Rebuild what you need."
    )
