"""Journals made in this process, fast, for tests of what commands do with them."""

from pathlib import Path
from typing import Any

from rlm import RLM, Limits, ScriptedClient
from rlm.clients.offline import PASSAGES
from rlm.records.journal import Journal, Places
from rlm.results import RunResult

OFFLINE = "offline/extractive"
TEXT = "Nothing here.\nThe access code for silver-dolphin is 4821.\n"
QUESTION = "What is the access code for silver-dolphin?"
FOUND = (
    f"{PASSAGES}\n\n1. lines 1–2\n   Nothing here.\n   The access code for silver-dolphin is 4821."
)
"""What the run of `offline` submits."""


def offline(state: Path, run_id: str | None = None, **options: Any) -> RunResult:
    """A run that `rlm resume` can continue anywhere, because its model needs no key."""
    with RLM(OFFLINE, journal=state, **options) as rlm:
        return rlm.ask(QUESTION, TEXT, run_id=run_id)


def limited(state: Path, run_id: str | None = None) -> RunResult:
    """One that stopped at a limit before its first step."""
    return offline(state, run_id, limits=Limits(max_tokens=25))


def scripted(
    state: Path, *codes: str, query: str = "Why?", rules: Any = (), **options: Any
) -> RunResult:
    """A run of a program of its own."""
    client = ScriptedClient([f"```repl\n{code}\n```" for code in codes], rules=rules)
    with RLM(client, journal=state, **options) as rlm:
        return rlm.ask(query, "some text")


def rewrite(state: Path, run_id: str, name: str, value: Any) -> None:
    """Replace a record of a journal, in the format the journal itself writes."""
    journal = Journal(Places(state).journal_of(run_id))
    journal.describe(**{name: value})
    journal.close()
