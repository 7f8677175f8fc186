"""Programs for the reference give the same results with it and with ours."""

import sys
from pathlib import Path

import pytest

from tests.originals.foreign import Result, cause_of, run_examples, run_tests, table
from tests.originals.side_by_side import PROGRAMS, REFERENCE, run_program

WITHOUT = "make build/venv-bench-rlms installs the reference engine"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_with_ours(name: str) -> None:
    done = run_program(name, sys.executable)
    assert done.error == ""
    assert done.value


@pytest.mark.heavy
@pytest.mark.skipif(not REFERENCE.exists(), reason=WITHOUT)
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_print_the_same(name: str) -> None:
    theirs, ours = run_program(name, REFERENCE), run_program(name, sys.executable)
    assert (theirs.error, ours.error) == ("", "")
    assert ours.value == theirs.value


def test_foreign_tests_and_examples_are_counted_by_cause(tmp_path: Path) -> None:
    (tmp_path / "rlm").mkdir()
    (tmp_path / "rlm" / "__init__.py").write_text("raise RuntimeError('not ours')")
    tests, examples = tmp_path / "tests", tmp_path / "examples"
    tests.mkdir()
    examples.mkdir()
    (tests / "test_some.py").write_text(
        "import pytest\nfrom rlm import RLM\n"
        "def test_fine():\n    assert RLM\n"
        "def test_wrong():\n    assert 1 == 2\n"
        "def test_missing():\n    import rlm.nowhere\n"
        "def test_set():\n    RLM('nobody/nothing')\n"
        "def test_private():\n    RLM('ollama/x')._subcall()\n"
        "@pytest.mark.skip\ndef test_not():\n    pass\n"
    )
    (tests / "test_lost.py").write_text("import rlm.nowhere\n")
    (examples / "good.py").write_text(
        "from rlm import RLM\nprint(RLM('openai', {'model_name': 'gpt-4o'}).completion('x'))\n"
    )
    (examples / "bad.py").write_text("1 / 0\n")
    results = [*run_tests(tests), *run_examples(examples)]
    assert sorted((each.name, each.outcome) for each in results) == [
        ("bad.py", "other"),
        ("good.py", "passed"),
        ("test_fine", "passed"),
        ("test_missing", "import error"),
        ("test_not", "skipped"),
        ("test_private", "private member"),
        ("test_set", "config error"),
        ("test_wrong", "assertion"),
        ("tests.test_lost", "import error"),
    ]


def test_the_table_adds_up() -> None:
    results = [Result("a", "x", "passed"), Result("a", "y", "other"), Result("b", "z", "passed")]
    assert table(results).splitlines() == [
        "    passed other",
        "a        1     1",
        "b        1     0",
        "all      2     1",
    ]
    assert cause_of("E   KeyError: 'x'") == "other"
