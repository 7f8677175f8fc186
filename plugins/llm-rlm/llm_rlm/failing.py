"""Errors of the engine's as llm's own, which its command shows in one line."""

import llm

__all__ = ["MISSING", "as_llm_error"]

MISSING = (
    "llm-rlm needs the engine, which is in the same repository: "
    "`pip install . ./plugins/llm-rlm` in its root installs both"
)


def as_llm_error(error: Exception) -> llm.ModelError:
    """The same, said for somebody who types `llm`."""
    from rlm.errors import UnknownPriceError

    if isinstance(error, UnknownPriceError):
        return llm.ModelError(
            "a budget needs the model's price, which is not known: add -o price IN,OUT, in US "
            "dollars for a million tokens, such as -o price 0.25,2"
        )
    return llm.ModelError(str(error) or type(error).__name__)
