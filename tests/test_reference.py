"""The tables in the documents say what the code says: names, defaults, descriptions, in order."""

import ast
import dataclasses
import inspect
import re
import signal
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import rlm.errors
from docs.reference import generate
from rlm.agent import AgentRLM
from rlm.api import RLM
from rlm.cli import commands
from rlm.cli._errors import MISUSED
from rlm.cli._output import EXIT_CODES
from rlm.cli.bench import bench
from rlm.cli.env import env
from rlm.cli.mcp import mcp
from rlm.cli.provenance import provenance
from rlm.clients._quirks import QUIRKS, UNKNOWN
from rlm.compat import spelling
from rlm.compat.backends import PROVIDERS as BACKEND_PROVIDERS
from rlm.compat.types import Completion
from rlm.config import Guards
from rlm.environments.local import LocalEnvironment
from rlm.errors import LimitExceededError, PolicyError
from rlm.events import SCHEMA_VERSION, Event, RunStarted
from rlm.limits import Limits
from rlm.models import HOMES
from rlm.wiring.registry import ADAPTERS, PROVIDERS, environments
from rlm.worker.agent_names import AGENT_NAMES
from rlm.worker.ctx import ContextView
from rlm.worker.repl_names import REPL_NAMES
from tests.shape.tree import ONE_PROCESS, load_modules, nodes_of

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
def test_documented_fields_and_defaults_match(section: str, struct: Any) -> None:
    written = as_written(tables("limits.md")[f"{section}/field"])
    assert list(written.items()) == list(fields_of(struct).items())


def test_documented_repl_names_match() -> None:
    rows = [(unquoted(name), text, mark) for name, text, mark in tables("repl-names.md")["/name"]]
    assert rows == [(n.usage, n.description, "yes" if n.restored else "") for n in REPL_NAMES]


def test_documented_agent_names_match() -> None:
    found = tables("agents.md")["Names in the REPL/name"]
    rows = [(unquoted(name), text, mark) for name, text, mark in found]
    assert rows == [(n.usage, n.description, "yes" if n.restored else "") for n in AGENT_NAMES]


def test_documented_agent_keywords_and_methods_match() -> None:
    found = tables("agents.md")
    parameters = inspect.signature(AgentRLM).parameters.values()
    named = {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}
    assert list(as_written(found["AgentRLM/keyword"]).items()) == list(named.items())
    methods = [unquoted(row[0]) for row in found["AgentRLM/method"]]
    assert methods == signatures(AgentRLM)


def test_documented_ctx_methods_match() -> None:
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


def test_documented_events_match() -> None:
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


def test_the_documented_error_tree_matches() -> None:
    page = (REFERENCE / "errors.md").read_text("utf-8")
    drawn = page.split("```text\n", 1)[1].split("\n```", 1)[0]
    assert f"\n\n{drawn}\n\n" in (rlm.errors.__doc__ or "")


RECORDED = ("export", "fork", "replay", "resume", "rm", "runs", "show", "view")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ask", commands.commands["ask"]),
        *((f"bench {name}", command) for name, command in bench.commands.items()),
        ("chat", commands.commands["chat"]),
        ("doctor", commands.commands["doctor"]),
        ("env", env.commands["check"]),
        ("fake-server", commands.commands["fake-server"]),
        ("mcp", mcp),
        *((f"mcp {name}", command) for name, command in mcp.commands.items()),
        ("models", commands.commands["models"]),
        ("provenance", provenance.commands["verify"]),
        *((name, commands.commands[name]) for name in RECORDED),
    ],
)
def test_documented_command_options_match(name: str, command: click.Command) -> None:
    rows = tables("cli.md")[f"rlm {name}/option"]
    params = command.params
    options = [each for each in params if each.param_type_name == "option"]
    spelled = [[*each.opts, *each.secondary_opts] for each in options]
    assert [names_in(row[0]) for row in rows] == spelled
    for row, option in zip(rows, options, strict=True):
        said = getattr(option, "help", None)
        if said is not None:
            assert row[1] == said
        else:
            choices = list(getattr(option.type, "choices", ()))
            assert names_in(row[1]) == choices
            assert f"`{option.default}` (the default)" in row[1]


def runnable(group: click.Group, name: str = "rlm") -> Iterator[str]:
    """The full names of all commands that do something."""
    for each, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from runnable(command, f"{name} {each}")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{name} {each}"


def test_every_command_is_described() -> None:
    page = (REFERENCE / "cli.md").read_text("utf-8")
    described = re.findall(r"^## rlm ([\w-]+)$", page, re.MULTILINE)
    assert sorted(described) == sorted(commands.commands)
    assert sorted(bench.commands) == ["generate", "list", "report", "run"]
    assert sorted(env.commands) == ["check", "list"]
    assert sorted(mcp.commands) == ["connect", "doctor", "install"]
    assert sorted(provenance.commands) == ["verify"]


def test_the_command_list_at_the_top_is_complete() -> None:
    page = (REFERENCE / "cli.md").read_text("utf-8")
    listed = page.split("```text\n", 1)[1].split("\n```", 1)[0].splitlines()
    names = [re.match(r"rlm(?: [a-z][a-z-]*(?![|a-z-]))*", line) for line in listed]
    found = [match[0] for match in names if match is not None and match[0] != "rlm"]
    assert len(found) == len(set(found)) == len(listed) - 2  # besides --version and --help
    assert sorted(found) == sorted(runnable(commands))


def test_documented_exit_codes_match() -> None:
    rows = tables("cli.md")["Exit codes/code"]
    written = [int(code) for row in rows for code in re.findall(r"\d+", row[0])]
    signalled = [128 + each for each in (signal.SIGTERM, signal.SIGHUP)]
    assert written == [*sorted({*EXIT_CODES.values(), MISUSED}), *signalled]


# -- the page that is written from the code --------------------------------------------------------


def test_the_api_page_is_up_to_date() -> None:
    assert generate.PAGE.read_text("utf-8") == generate.render(), "run `make docs`"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tables: tables["RLM"].pop("model"), "RLM.model has no description"),
        (lambda tables: tables["Usage"].update(color="red"), "Usage.color describes nothing"),
        (lambda tables: tables["Chat"].update(ask="Asks."), "Chat.ask describes nothing"),
    ],
)
def test_descriptions_must_match_the_code(change: Callable[[Any], Any], words: str) -> None:
    tables = tomllib.loads(generate.DESCRIPTIONS.read_text("utf-8"))
    change(tables)
    with pytest.raises(ValueError) as complaint:
        generate.render(generate.Descriptions(tables))
    assert str(complaint.value) == words


# -- the reference engine's spelling ---------------------------------------------------------------

SAME_NAMES = {
    *("environment", "environment_kwargs", "logger", "verbose", "persistent", "compaction"),
    *("on_subcall_start", "on_subcall_complete", "on_iteration_start", "on_iteration_complete"),
    "orchestrator",
}
"""Keywords of the reference engine that are called the same here."""


def test_documented_reference_keywords_match() -> None:
    rows = {unquoted(row[0]): row for row in tables("compatibility.md")["Constructor/keyword"]}
    assert set(inspect.signature(RLM).parameters) >= SAME_NAMES
    assert not spelling.REFERENCE_KEYWORDS & SAME_NAMES
    assert rows.keys() == spelling.REFERENCE_KEYWORDS | SAME_NAMES == set(spelling.POSITIONS)
    ours = {name: f"Limits.{limit}" for name, limit in spelling.LIMIT_KEYWORDS.items()}
    ours |= spelling.SAME_MEANING | {name: name for name in SAME_NAMES}
    for name, row in rows.items():
        assert names_in(row[1])[0] == ours.get(name, names_in(row[1])[0])
        assert row[2] in {"works", "works differently", "not in this version"}


def test_documented_reference_backends_and_environments_match() -> None:
    found = tables("compatibility.md")
    for name, state in found["Backends and environments/backend"]:
        provider = BACKEND_PROVIDERS.get(unquoted(name), unquoted(name))
        assert provider in PROVIDERS or provider in ADAPTERS, name
        assert state == "works" or state.startswith("works; "), name
    for name, state in found["Backends and environments/environment"]:
        here = unquoted(name) in environments()
        assert state.startswith("works" if here else "not in this version"), name


def test_documented_completion_fields_match() -> None:
    rows = tables("compatibility.md")["The result/field"]
    assert {unquoted(row[0]) for row in rows} == {
        each.name for each in dataclasses.fields(Completion)
    }


@pytest.mark.parametrize("page", ["errors.md", "compatibility.md"])
def test_documented_error_attributes_match(page: str) -> None:
    (rows,) = (rows for key, rows in tables(page).items() if key.endswith("/error"))
    written = {unquoted(row[0]): names_in(row[-1]) for row in rows}
    kinds = [k for k in vars(rlm.errors).values() if isinstance(k, type)]
    assert written == {
        kind.__name__: [name for name in vars(kind()) if name != "partial_answer"]
        for kind in kinds
        if issubclass(kind, LimitExceededError)
        and kind is not LimitExceededError
        and not issubclass(kind, PolicyError)  # Those of rlm_runtime carry a trace, all alike.
    }


# -- providers, and the guided tour ----------------------------------------------------------------


def test_documented_providers_match() -> None:
    rows = next(iter(tables("../guides/openai-compatible-servers.md").values()))
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


def test_documented_default_models_and_price_sources_match() -> None:
    rows = tables("../guides/openai-compatible-servers.md")["Default models and prices/provider"]
    assert [(unquoted(row[0]), unquoted(row[1])) for row in rows] == [
        (name, each.default_model) for name, each in PROVIDERS.items() if each.default_model
    ]
    for name, _, source in rows:
        home = HOMES.get(unquoted(name))
        assert ("its replies" in source) is QUIRKS.get(unquoted(name), UNKNOWN).states_cost, name
        assert source.endswith(f"table: `{home}`" if home else "table: that of the maker"), name


@ONE_PROCESS
def test_paths_named_in_the_tour_exist() -> None:
    text = " ".join(TOUR.read_text("utf-8").split())
    stops = list(STOP.finditer(text))
    assert len(stops) > 30
    assert len({stop["path"] for stop in stops}) <= 25
    wrong = []
    for stop in stops:
        path = (TOUR.parent / stop["path"]).resolve()
        known = defined_in(path)
        wrong += [f"{path.name}: {name}" for name in names_in(stop["names"]) if name not in known]
    assert not wrong, "not there: " + ", ".join(wrong)
    everything = {name for each in load_modules().values() for name in names_anywhere(each.tree)}
    said = {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", text)}
    assert said - everything - {"py"} == set()


def names_anywhere(tree: ast.Module) -> set[str]:
    """Whatever a module defines, assigns or takes, at any depth."""
    nodes = nodes_of(tree)
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


def test_documented_options_of_the_local_sandbox_match() -> None:
    """The guide's table names each, in the order of the constructor or not."""
    page = (ROOT / "docs/guides/local-sandbox.md").read_text("utf-8")
    table = page.partition("| option | default |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert named == inspect.signature(LocalEnvironment).parameters.keys()
