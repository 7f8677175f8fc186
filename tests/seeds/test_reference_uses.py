"""Uses of the reference engine beyond the five documents: each is shown by a test that exists."""

import tomllib
from pathlib import Path

import pytest

from tests.seeds.nodes import exists

USES = tomllib.loads(Path(__file__).with_name("reference.toml").read_text("utf-8"))["uses"]


@pytest.mark.parametrize("name", USES)
def test_each_use_is_shown_by_a_test(name: str) -> None:
    assert USES[name].keys() == {"use", "test"}
    assert exists(USES[name]["test"])


def test_no_use_is_listed_twice() -> None:
    told = [each["use"] for each in USES.values()]
    assert len(set(told)) == len(told)
