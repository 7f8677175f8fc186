"""The tables in the documents say what the code says: names, defaults, descriptions, in order."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest

import rlm.errors
from rlm.api import RLM
from rlm.cli.ask import EXIT_CODES, ask
from rlm.config import Guards
from rlm.events import SCHEMA_VERSION, Event, RunStarted
from rlm.limits import Limits
from rlm.registry import PROVIDERS
from rlm.results import RunResult
from rlm.worker.ctx import ContextView
from rlm.worker.namespace import REPL_NAMES

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
TOUR = ROOT / "docs" / "concepts" / "one-request.md"
STOP = re.compile(
    r"\[`[\w/.]+`\]\((?P<path>\.\./\.\./src/[\w/.]+)\)(?P<names>(?:(?: ·|,) `[\w.]+`)*)"
)

Row = tuple[str, ...]


def tables(page: str) -> dict[str, list[Row]]:
    """The rows of a page's tables, by section and the first cell of their headings."""
    found: dict[str, list[Row]] = {}
    section, key = "", ""
    for line in (REFERENCE / page).read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            key = ""
            continue
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if not key:
            key = f"{section}/{cells[0]}"
            found[key] = []
        elif set(cells[0]) != {"-"}:
            found[key].append(cells)
    return found


def unquoted(cell: str) -> str:
    assert cell.startswith("`"), cell
    assert cell.endswith("`"), cell
    return cell[1:-1]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def fields_of(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct(), name) for name in struct.__struct_fields__}


def as_written(rows: list[Row]) -> dict[str, Any]:
    return {unquoted(row[0]): ast.literal_eval(unquoted(row[1])) for row in rows}


@pytest.mark.parametrize(("section", "struct"), [("Limits", Limits), ("Guards", Guards)])
def test_fields_and_defaults(section: str, struct: Any) -> None:
    written = as_written(tables("limits.md")[f"{section}/field"])
    assert list(written.items()) == list(fields_of(struct).items())


def test_repl_names() -> None:
    rows = [(unquoted(name), text, mark) for name, text, mark in tables("repl-names.md")["/name"]]
    assert rows == [(n.usage, n.description, "yes" if n.restored else "") for n in REPL_NAMES]


def test_methods_of_ctx() -> None:
    rows = tables("repl-names.md")["Methods of ctx/method"]
    assert [unquoted(row[0]) for row in rows] == signatures(ContextView)


def signatures(owner: type) -> list[str]:
    """The public methods as they are called: `find(pattern, regex=False)`."""
    found = []
    for name, function in vars(owner).items():
        if inspect.isfunction(function) and not name.startswith("_"):
            signature = inspect.signature(function)
            given = [p.replace(annotation=p.empty) for p in signature.parameters.values()][1:]
            found.append(f"{name}{inspect.Signature(given)}")
    return found


def test_events() -> None:
    kinds = get_args(Event)
    common = [
        n for n in RunStarted.__struct_fields__ if all(n in k.__struct_fields__ for k in kinds)
    ]
    found = tables("events.md")
    assert [unquoted(row[0]) for row in found["/field"]] == common
    written = [(unquoted(r[0]), unquoted(r[1]), names_in(r[3])) for r in found["/type"]]
    assert written == [
        (
            kind.__struct_config__.tag,
            kind.__name__,
            [name for name in kind.__struct_fields__ if name not in common],
        )
        for kind in kinds
    ]
    assert found["/field"][-1][1].startswith(f"{SCHEMA_VERSION};")


def test_error_tree() -> None:
    page = (REFERENCE / "errors.md").read_text("utf-8")
    drawn = page.split("```text\n", 1)[1].split("\n```", 1)[0]
    assert f"\n\n{drawn}\n\n" in (rlm.errors.__doc__ or "")


def test_options_of_ask() -> None:
    rows = tables("cli.md")["rlm ask/option"]
    options = [each for each in ask.params if each.param_type_name == "option"]
    assert [names_in(row[0]) for row in rows] == [each.opts for each in options]
    for row, option in zip(rows, options, strict=True):
        said = getattr(option, "help", None)
        if said is not None:
            assert row[1] == said
        else:
            choices = list(getattr(option.type, "choices", ()))
            assert names_in(row[1]) == choices
            assert f"`{option.default}` (the default)" in row[1]


def test_exit_codes() -> None:
    written = [int(unquoted(row[0])) for row in tables("cli.md")["Exit codes/code"]]
    wrong_usage = 2
    assert written == sorted({*EXIT_CODES.values(), wrong_usage})


def test_keywords_of_rlm() -> None:
    known = inspect.signature(RLM).parameters.values()
    written = as_written(tables("api/rlm.md")["Constructor/keyword"])
    assert list(written.items()) == [(each.name, each.default) for each in known]


def test_methods_of_rlm() -> None:
    rows = tables("api/rlm.md")["Methods/method"]
    assert sorted(unquoted(row[0]) for row in rows) == sorted(signatures(RLM))


def test_fields_of_the_result() -> None:
    rows = tables("api/rlm.md")["RunResult/field"]
    assert [unquoted(row[0]) for row in rows] == list(RunResult.__struct_fields__)
    for name in ("stop_reason", "answer_source"):
        choices = get_args(RunResult.__annotations__[name])
        said = next(row[1] for row in rows if row[0] == f"`{name}`")
        assert tuple(names_in(said)) == choices


def test_providers() -> None:
    (rows,) = tables("../guides/openai-compatible-servers.md").values()
    written = {unquoted(row[0]): (*map(names_in, row[1:4]), row[4]) for row in rows}
    assert list(written.items()) == [
        (
            name,
            (
                [each.base_url] if each.base_url else [],
                list(each.base_url_variables),
                list(each.key_variables),
                "yes" if each.needs_key else "",
            ),
        )
        for name, each in PROVIDERS.items()
    ]


def test_the_tour_names_what_is_there() -> None:
    text = " ".join(TOUR.read_text("utf-8").split())
    stops = list(STOP.finditer(text))
    assert len(stops) > 30
    wrong = []
    for stop in stops:
        path = (TOUR.parent / stop["path"]).resolve()
        known = defined_in(path)
        wrong += [f"{path.name}: {name}" for name in names_in(stop["names"]) if name not in known]
    assert not wrong, "not there: " + ", ".join(wrong)
    modules = (ROOT / "src" / "rlm").rglob("*.py")
    everything = {name for path in modules for name in names_anywhere(path)}
    said = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", text)}
    assert said - everything - {"py"} == set()


def names_anywhere(path: Path) -> set[str]:
    """Whatever a file defines, assigns or takes, at any depth."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    named = {str(value) for node in nodes if (value := getattr(node, "name", None))}
    bound = {node.id for node in nodes if isinstance(node, ast.Name)}
    return named | bound | {node.arg for node in nodes if isinstance(node, ast.arg)}


def defined_in(path: Path) -> set[str]:
    """Functions, classes and `Class.method`s of a file."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if not isinstance(each, ast.ClassDef))
            found |= {f"{node.name}.{each.name}" for each in inner if hasattr(each, "name")}
    return found
