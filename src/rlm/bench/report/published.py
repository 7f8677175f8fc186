"""Scores from the paper on recursive language models, to have something to look at beside ours."""

from typing import NamedTuple

__all__ = ["PUBLISHED", "SOURCE", "Published"]

SOURCE = "A. Zhang, T. Kraska, O. Khattab: Recursive Language Models, 2025, arXiv:2512.24601"


class Published(NamedTuple):
    """A benchmark of the paper, the task here that is made in its manner, and what it scored."""

    benchmark: str
    like: str
    score: float
    samples: int


PUBLISHED = (
    Published("CodeQA (LongBench v2)", "codeqa", 62.0, 50),
    Published("BrowseComp+ (1K documents)", "multihop", 91.3, 150),
    Published("OOLONG", "oolong", 56.0, 50),
    Published("OOLONG-Pairs", "oolong-pairs", 58.0, 20),
)
"""RLM with GPT-5, depth 1; in percent."""
