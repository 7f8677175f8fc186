"""The guide lists exactly what a script may say."""

import re

from rlm.testing.fake_server import BEHAVIOURS, Answer
from tests.shape.tree import ROOT

PAGE = (ROOT / "docs/guides/testing-over-http.md").read_text("utf-8")


def rows(heading: str) -> list[tuple[str, str]]:
    table = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)


def test_the_fields_of_an_answer() -> None:
    assert [name for name, _ in rows("field | meaning")] == list(Answer.__struct_fields__)


def test_the_behaviours() -> None:
    assert dict(rows("behaviour | what it does")) == BEHAVIOURS
