"""Every block of every document is executed by a test; none can be forgotten."""

import re

import pytest

from tests.seeds.nodes import exists
from tests.seeds.plan import PLAN
from tests.seeds.reading import DIGESTS, blocks, text_of
from tests.shape.tree import ROOT

HERE = "tests/seeds"


@pytest.mark.parametrize("document", DIGESTS)
def test_every_fence_of_the_documents_is_found(document: str) -> None:
    """Counted in another way than they are read: fence marks at the start of a line, in pairs."""
    marks = re.findall(r"^ *```", text_of(document), re.MULTILINE)
    found = [name for name in blocks() if name.startswith(document)]
    assert len(marks) == 2 * len(found) > 0


def test_every_block_has_an_entry_and_every_entry_a_block() -> None:
    assert list(PLAN) == list(blocks())


@pytest.mark.parametrize("name", PLAN)
def test_its_tests_exist_and_read_it_from_the_document(name: str) -> None:
    assert PLAN[name]
    for node in PLAN[name]:
        assert exists(f"{HERE}/{node}"), f"{name}: there is no {node}"
        path = ROOT / HERE / node.partition("::")[0]
        assert f'"{name}"' in path.read_text("utf-8").replace("'", '"'), (
            f"{path.name} leaves it out"
        )


def test_a_missing_test_is_noticed() -> None:
    assert exists(f"{HERE}/test_blocks.py::test_a_missing_test_is_noticed")
    assert not exists(f"{HERE}/test_blocks.py::test_nobody_wrote")
    assert not exists(f"{HERE}/test_nowhere.py::test_a_missing_test_is_noticed")
    assert not exists(f"{HERE}/nodes.py::exists")
