"""Texts with labels, from published datasets; data/LICENSES.md says whose they are."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["SUBJECTS", "LabelledTexts", "labelled_texts"]

SUBJECTS = {
    "banking77": "a question that somebody asked a bank",
    "clinc150": "something that somebody said to an assistant",
    "sms_spam": "a text message that somebody received",
}
"""Dataset → what its texts are."""


class LabelledTexts(NamedTuple):
    """The labels in their order, and the texts of each."""

    labels: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]


@cache
def labelled_texts(name: str) -> LabelledTexts:
    """All texts of a dataset."""
    data = files("rlm.bench").joinpath("data").joinpath(f"{name}.tsv").read_text("utf-8")
    by_label: dict[str, list[str]] = {}
    for line in data.splitlines():
        label, _, text = line.partition("\t")
        by_label.setdefault(label, []).append(text)
    return LabelledTexts(tuple(by_label), tuple(map(tuple, by_label.values())))
