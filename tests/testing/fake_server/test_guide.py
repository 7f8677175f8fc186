"""The guide lists exactly what a script may say."""

import re

from rlm.testing.fake_server import BEHAVIOURS, Answer
from tests.shape.tree import ROOT

PAGE = (ROOT / "docs/guides/testing-over-http.md").read_text("utf-8")


def rows(heading: str) -> list[tuple[str, str]]:
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)


def test_documented_answer_fields_match() -> None:
    assert [name for name, _ in rows("field | meaning")] == list(Answer.__struct_fields__)


def test_documented_behaviours_match() -> None:
    assert dict(rows("behaviour | what it does")) == BEHAVIOURS
