"""What the offline search is told, and what it returns. This file runs INSIDE the sandbox."""

from typing import TypedDict

__all__ = ["HEADS", "Hit", "Key", "Plan"]

HEADS = {
    *("agent", "asset", "company", "department", "device", "division", "machine", "mission"),
    *("node", "operation", "order", "product", "program", "programme", "project", "protocol"),
    *("sensor", "server", "site", "station", "task", "team", "unit", "vault", "vessel"),
}
"""Nouns that say what kind of thing a name names: Project Blue Heron may be just Blue Heron."""


class Key(TypedDict):
    """A name the passage must hold. A weak one counts only with other evidence beside it."""

    pattern: str
    form: str
    words: list[str]
    head: str
    weak: bool


class Plan(TypedDict):
    """What to look for: keys, and the other words of the question with words related to them."""

    question: str
    keys: list[Key]
    terms: dict[str, list[str]]
    wants_value: bool


class Hit(TypedDict):
    """A passage, the sentence in it that matters, and whether it may be taken for the answer."""

    score: float
    sure: bool
    start: int
    sentence: str
    passage: str
