"""Programs for the reference give the same results with it and with ours."""

import sys
from pathlib import Path

import pytest

from tests.originals.foreign import Result, cause_of, run_examples, run_tests, table
from tests.originals.side_by_side import PROGRAMS, REFERENCE, run_program

WITHOUT = "make build/venv-bench-rlms installs the reference engine"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if number % 8 == 0 else pytest.mark.heavy)
        for number, name in enumerate(PROGRAMS)
    ],
)
def test_a_program_for_the_reference_runs_on_our_engine(name: str) -> None:
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


@pytest.mark.heavy
def test_tests_and_examples_of_a_checkout_are_counted_by_cause(tmp_path: Path) -> None:
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
    (tests / "test_before.py").write_text(
        "import sys\nimport rlm.core.rlm\n"
        "def test_forgets():\n"
        "    for name in [name for name in sys.modules if name.split('.')[0] == 'rlm']:\n"
        "        del sys.modules[name]\n"
    )
    (tests / "test_replaced.py").write_text(
        "from unittest.mock import Mock, patch\nimport rlm.core.rlm as module\n"
        "from rlm import RLM\n"
        "def test_replaces():\n"
        "    with patch.object(module, 'get_client') as made:\n"
        "        made.return_value.completion.return_value = 'FINAL(4)'\n"
        "        made.return_value.get_last_usage.return_value = None\n"
        "        one = RLM(backend='openai', backend_kwargs={'model_name': 'm'})\n"
        "    assert made.call_count >= 1\n"
    )
    (examples / "good.py").write_text(
        "from rlm import RLM\nprint(RLM('openai', {'model_name': 'gpt-4o'}).completion('x'))\n"
    )
    (examples / "bad.py").write_text("1 / 0\n")
    results = [*run_tests(tests), *run_examples(examples)]
    assert sorted((each.name, each.outcome) for each in results) == [
        ("bad.py", "other"),
        ("good.py", "passed"),
        ("test_fine", "passed"),
        ("test_forgets", "passed"),
        ("test_missing", "import error"),
        ("test_not", "skipped"),
        ("test_private", "private member"),
        ("test_replaces", "passed"),
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
    absent = "E   ModuleNotFoundError: No module named 'tests.mock_lm'"
    assert cause_of(absent) == "incomplete checkout"
