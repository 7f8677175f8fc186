"""Compiling a cell in two pieces means the same as compiling its tree."""

import linecache
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm.worker import compiling


def run(cell: compiling.Cell) -> tuple[str, dict[str, Any], str]:
    """What a cell echoes, the numbers it binds, and the end of its traceback."""
    echoed: list[Any] = []
    names: dict[str, Any] = {compiling.ECHO: echoed.append, "f": str, "x": 0}
    failure = ""
    try:
        for code in cell.statements:
            exec(code, names)
        if cell.expression is not None:
            echoed.append(eval(cell.expression, names))
    except Exception:
        lines = traceback.format_exc().splitlines()
        start = next(n for n, line in enumerate(lines) if "<cell>" in line)
        failure = "\n".join(lines[start:])
    shown = re.sub("0x[0-9a-f]+", "", repr(echoed))
    return shown, {k: v for k, v in names.items() if isinstance(v, int)}, failure


def both_ways(source: str) -> tuple[Any, Any]:
    """How a cell comes out of `compile_cell`, and of its tree alone; or both errors."""
    outcomes: list[Any] = []
    ways: list[Callable[[], compiling.Cell]] = [
        lambda: compiling.compile_cell(source, "<cell>"),
        lambda: compiling.Cell([compiling._compile_by_tree(source, "<cell>")]),
    ]
    for way in ways:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                outcomes.append(run(way()))
            except SyntaxError as error:
                outcomes.append((error.msg, error.lineno, error.offset, error.text))
    return outcomes[0], outcomes[1]


AWKWARD = [
    "f(x\nfor x in [1])",
    'f("""\nfor x in y: pass #""")',
    'x = """\nf(1)\n"""',
    'f("""\nx\n  """)',
    "x = 1; x",
    "for x in [1]: f(x); f(x)",
    "if x:\n    f(1)\nelse:\n    f(2)",
    "try:\n    1/0\nexcept ZeroDivisionError:\n    x = 1",
    "@f\ndef g(): pass",
    "x = 1\n\x0cf(x)",
    "x = 1\rx",
    "f(\n1\n)",
    "x, y = 1, 2",
    "x += 1\nx",
    "x == 1",
    "x <= 1",
    "*f(1), x",
    "'a'\n'b'",
    "x = \\\n1",
    "f(1)\\",
    "x: int = 1",
    "match x:\n    case 0:\n        x = 5",
    "x = 1\n\n\n1/0",
    "def g():\n    return 1/0\n\n# comment\ng()",
    "f(x) if x else f(1)  # end",
    "",
    "\n",
    "# only",
    "return 1",
    "f(x) = 1",
    "x = 1\n  x = 2",
    "global x\nx",
    "x = 1\nglobal x",
    "from __future__ import annotations\nf(1)",
    "f'{x=}'",
    "x['a=b']",
    "lambda: 0",
    "not x",
    "x\\\n+ 1",
]


@pytest.mark.parametrize("source", AWKWARD)
def test_awkward_cells_compile_as_their_syntax_trees_do(source: str) -> None:
    ours, trees = both_ways(source)
    assert ours == trees


pieces = st.sampled_from(
    ["x", "f", "(", ")", "[", "]", "=", "==", ",", ":", ";", "\n", "\n    ", "\n\n", " ", "1", "'",
     '"""', "#", "\\", "\\\n", "for x in [1]:", "if x:", "else:", "try:", "finally:", "def g():",
     "return", "+=", ".", "lambda", "\r\n", "\x0c", "1/0", "x = 1", "f(x)", "global x", "@f"]
)  # fmt: skip


@settings(max_examples=400)
@given(st.lists(pieces, max_size=14).map("".join))
def test_any_cell_compiles_as_its_syntax_tree_does(source: str) -> None:
    ours, trees = both_ways(source)
    assert ours == trees


LINES = st.sampled_from(
    ["x = 1", "x += 1", "f(x)", "x", "x + 1", "for i in range(2):\n    x += i", "# note", "",
     "def g(n):\n    return n\n", "g(x)", "y = [\n  1,\n]", "'''a\nb'''", "x, y = 1, 2", "1/0",
     "with open('/dev/null') as file:\n    file.read()", "if x: x = 2", "print", "x; x", "d = {}",
     "d['k'] = 1", "assert x", "f('''\nx = 1\n''')"]
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(LINES, max_size=6).map("\n".join))
def test_plausible_cells_compile_as_their_syntax_trees_do(source: str) -> None:
    ours, trees = both_ways(source)
    assert ours == trees


def test_most_cells_are_compiled_without_a_syntax_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_compile_by_tree", None)
    for source in (
        "x = 1",
        "print(x)",
        "context[:100]",
        "import re\nhits = re.findall('a', context)\nprint(len(hits))",
        "for i in range(3):\n    print(i)",
        "x = 1\n\ndef f():\n    return x\n",
        "a, b = 1, 2\n",
        "reply = llm_query(\n    'x',\n    )",
    ):
        compiling.compile_cell(source, "<cell>")


def test_source_lines_are_available_for_tracebacks() -> None:
    compiling.compile_cell("x = 1\r\ny = 2", "<cell lines>")
    assert linecache.getlines("<cell lines>") == ["x = 1\n", "y = 2\n"]


@pytest.mark.parametrize("source", ["x = 1\nx is 1", "d = {}\nd['k'] = 1 is 1", "x = 1 is 1"])
def test_a_warning_is_given_once(source: str) -> None:
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        compiling.compile_cell(source, "<cell>")
    assert len(given) == 1


@pytest.mark.parametrize(
    "source",
    ["1 / 0", "x = 1\n1 / 0", "if True:\n    y = 2 * (1 / 0)", "# await\n1 / 0", "f('é'); 1 / 0"],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_carets_are_below_what_failed(source: str, end: str) -> None:
    """A cell without a final line feed must not move them."""
    _, _, failure = run(compiling.compile_cell(source + end, "<cell>"))
    _, line, *carets, _ = failure.splitlines()
    assert carets[0].index("~") == line.index("1 / 0")
