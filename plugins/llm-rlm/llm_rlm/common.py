"""Helpers that several modules share: errors in llm's form, and text that is safe to show."""

import llm

__all__ = ["MISSING_ENGINE", "as_llm_error", "cut", "replace_surrogates"]

MISSING_ENGINE = (
    "llm-rlm needs the engine, which is in the same repository: "
    "`pip install . ./plugins/llm-rlm` in its root installs both"
)


def as_llm_error(error: Exception) -> llm.ModelError:
    """Convert an error of the engine to one that the `llm` command shows in one line."""
    from rlm.errors import UnknownPriceError

    if isinstance(error, UnknownPriceError):
        return llm.ModelError(
            "a budget needs the model's price, which is unknown: add -o price IN,OUT, in US "
            "dollars per million tokens, such as -o price 0.25,2"
        )
    return llm.ModelError(str(error) or type(error).__name__)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which neither terminals nor databases accept."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, max_chars: int, *, written_chars: int = 0, hint: str = "") -> str:
    """Return the text or, if it is too long, both ends and a note on how much is left out.

    `written_chars` is the original length, if `text` is already cut; `hint` is added to the note.
    """
    written_chars = max(written_chars, len(text))
    if written_chars <= max_chars:
        return text
    half = max_chars // 2
    note = f"… {written_chars - 2 * half:,} of {written_chars:,} characters left out{hint} …"
    return f"{text[:half]}\n{note}\n{text[len(text) - half :]}"
