"""Engines to compare: one script each, all with the same scenarios.

A contender runs in its own environment, so it shares only the standard library (`contender.py`,
`endpoint.py`, `tasks.py`) and lines of JSON with this side.
"""

from typing import NamedTuple

__all__ = ["ENGINES", "Engine"]


class Engine(NamedTuple):
    """A contender: its script here, and how it is imported."""

    script: str
    package: str
    import_package: str
    import_class: str
    about: str


ENGINES = {
    "rlm": Engine(
        "with_rlm.py",
        "recursivelm",
        "import rlm",
        "from rlm import RLM",
        "ours; cells in the sandbox of `local`",
    ),
    "rlms": Engine(
        "with_rlms.py",
        "rlms",
        "import rlm",
        "from rlm import RLM",
        "the reference; `local`: cells in its own process, unprotected",
    ),
    "dspy": Engine(
        "with_dspy.py",
        "dspy",
        "import dspy",
        "from dspy import RLM",
        "`dspy.RLM` with `LocalInterpreter`: cells in a child process, unprotected",
    ),
}
