"""What people say about runs (tags, scores, comments), and conditions that choose runs."""

from rlm.records.judging.judgments import (
    Comment,
    Judgment,
    JudgmentChange,
    Judgments,
    checked_score,
    checked_tag,
)
from rlm.records.judging.where import Condition, RunValues, parse_condition, status_words

__all__ = [
    "Comment",
    "Condition",
    "Judgment",
    "JudgmentChange",
    "Judgments",
    "RunValues",
    "checked_score",
    "checked_tag",
    "parse_condition",
    "status_words",
]
