"""Questions about this project's documentation, and the passages that answer them.

The ranking of `ctx.search` was tuned on `TUNED`; `HELD_OUT` shows whether that carries over. Each
question has one or more places: the file, and words that the passage must hold.
"""

from typing import NamedTuple

__all__ = ["HELD_OUT", "TUNED", "Graded"]


class Graded(NamedTuple):
    """A question, and (file, words) of every passage that answers it."""

    question: str
    places: tuple[tuple[str, str], ...]


TUNED = (
    Graded(
        "How long are runs kept on disk before they are deleted?",
        (
            ("concepts/journal.md", "those of the last 30 days"),
            ("guides/journal.md", "removed automatically: after 30 days"),
            ("reference/cli.md", "those older than 30 days"),
        ),
    ),
    Graded(
        "Can cells open a network connection in the local sandbox?",
        (
            ("guides/local-sandbox.md", "open a socket"),
            ("guides/local-sandbox.md", "it gets no network"),
            ("concepts/gateway.md", "which has no network"),
        ),
    ),
    Graded(
        "What happens when a provider reports no usage?",
        (("concepts/budgets.md", "If a provider reports no usage"),),
    ),
    Graded(
        "How do I continue a batch after Ctrl-C?",
        (("guides/batch.md", "run the same command again"),),
    ),
    Graded(
        "Which files of a folder are left out?",
        (
            ("guides/contexts.md", "These are left out"),
            ("guides/contexts.md", "files exclude"),
            ("guides/contexts.md", "Everything that is left out"),
        ),
    ),
    Graded(
        "How many times is a failed request retried?",
        (("concepts/calls.md", "up to five attempts in all"),),
    ),
    Graded(
        "How do I use a model that runs in Ollama?",
        (
            ("guides/openai-compatible-servers.md", "ollama"),
            ("guides/choosing-a-model.md", "ollama"),
        ),
    ),
    Graded(
        "How do I ask for citations on the command line?",
        (("guides/citations.md", "--cite"), ("reference/cli.md", "--cite")),
    ),
    Graded(
        "What does the stop reason limit mean?",
        (("concepts/endings.md", "a request would have exceeded a limit"),),
    ),
    Graded(
        "Are keys written to the journal?",
        (("concepts/journal.md", "Keys are never written"),),
    ),
)

HELD_OUT = (
    Graded(
        "How can I resume a run that was killed?",
        (
            ("guides/journal.md", "rlm resume"),
            ("guides/journal.md", "It works the same after a kill"),
            ("reference/cli.md", "can be continued with `rlm resume RUN`"),
            ("concepts/journal.md", "resum"),
        ),
    ),
    Graded(
        "Which exit code means that a limit was reached?",
        (("reference/cli.md", "a limit was reached"),),
    ),
    Graded(
        "How do I look at a run in the browser?",
        (
            ("guides/viewer.md", "shows runs in your browser"),
            ("guides/viewer.md", "rlm view"),
            ("start/first-ten-minutes.md", "rlm view"),
            ("reference/cli.md", "Show the run in a browser"),
            ("reference/cli.md", "in your browser"),
        ),
    ),
    Graded(
        "Can it read PDF files?",
        (
            ("guides/contexts.md", "converts PDF, Word"),
            ("guides/contexts.md", "HTML files become Markdown"),
        ),
    ),
    Graded(
        "Do variables survive from one cell to the next?",
        (
            ("concepts/the-repl.md", "Variables persist"),
            ("guides/local-sandbox.md", "whether variables survive"),
        ),
    ),
    Graded(
        "When is a run considered stuck?",
        (("concepts/endings.md", "A run is stuck when"),),
    ),
    Graded(
        "How do I give the model my own Python functions?",
        (("guides/tools.md", "function"), ("reference/agents.md", "function")),
    ),
    Graded(
        "How much memory does the conversion of a document get?",
        (("guides/contexts.md", "512 MiB of memory"),),
    ),
    Graded(
        "How many requests are sent to a server at the same time?",
        (
            ("concepts/calls.md", "A lane starts with 64 concurrent requests"),
            ("concepts/calls.md", "is the maximum for one"),
            ("reference/limits.md", "max_concurrent_calls"),
        ),
    ),
    Graded(
        "What is the maximum length of an answer's citation?",
        (("guides/citations.md", "2,000 characters"),),
    ),
)
