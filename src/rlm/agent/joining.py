"""How the pieces that cells streamed and the answer that was handed in become one text.

What a user has been shown can't be taken back, so it is the beginning of the answer.
"""

__all__ = ["rest_of"]


def rest_of(streamed: str, submitted: str) -> str:
    """What is still to be said; `streamed` and this together are the answer.

    Most models hand in the whole answer, so that only its end is missing. Some hand in what they
    said last, and nothing is. The others go on where they stopped.
    """
    if submitted.startswith(streamed):
        return submitted[len(streamed) :]
    return "" if streamed.endswith(submitted) else submitted
