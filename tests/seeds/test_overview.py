"""004: the overview of an engine like this one. Its code runs as written."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from rlm.wiring import registry
from tests.endpoint import endpoint, texts
from tests.environments.clouds.clouds import on_double
from tests.seeds.models import reader
from tests.seeds.reading import code_of, text_of
from tests.seeds.running import run_notebook, run_python
from tests.shape.tree import ROOT

POWERS = "\n".join(str(2**n) for n in range(100))
LOCAL = 'environment="local"'


def test_the_constructor_example(tmp_path: Path) -> None:
    with endpoint(reader) as server:
        variables = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": server.url}
        done = run_python(["-c", code_of("004/1")], tmp_path, **variables)
    assert done.stderr == ""
    assert done.stdout.strip() == POWERS
    assert {body["model"] for body in server.bodies} == {"gpt-5-nano"}
    assert set(server.keys) == {"Bearer sk-x"}
    assert "powers of two" not in texts(server.bodies[0])  # the task is in `context`


@pytest.mark.parametrize("cloud", ["modal", "prime"])
def test_the_constructor_example_in_a_cloud(cloud: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the other values that its comment offers, on doubles of the providers."""
    assert f'"{cloud}"' in code_of("004/1")
    code = code_of("004/1").replace(LOCAL, f'environment="{cloud}"') + "\nrlm.close()"
    printed = io.StringIO()
    with endpoint(reader) as server, on_double(cloud) as (environment, machine):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        known = {cloud: environment}
        monkeypatch.setattr(registry, "make_environment", lambda name, options: known[name])
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "<004/1>", "exec"), {})
    assert printed.getvalue().strip() == POWERS
    assert len(machine.made) == len(machine.ended) == 1


def test_the_agent_example(tmp_path: Path) -> None:
    with endpoint(reader) as server:
        variables = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": server.url}
        done = run_notebook(code_of("004/2"), tmp_path, **variables)
    assert done.stderr == ""
    assert done.stdout == "Alex: Searching for rlm...Done."
    assert {body["model"] for body in server.bodies} == {"gpt-4"}
    assert "`search_web(q)`" in texts(server.bodies[0])
    assert "Alex" not in texts(server.bodies[0])


def test_the_logger_example(tmp_path: Path) -> None:
    """As written, `...` included; then one question, to see that something is saved."""
    code = code_of("004/3") + '\nprint(rlm.completion("Say hello.").response)'
    with endpoint(reader) as server:
        done = run_python(
            ["-c", code],
            tmp_path,
            RLM_MODEL="openai/gpt-5-nano",
            OPENAI_API_KEY="sk-x",
            OPENAI_BASE_URL=server.url,
        )
    assert done.stderr == ""
    assert done.stdout == "hello\n"
    (log,) = (tmp_path / "logs").glob("*.jsonl")
    assert "sk-x" not in log.read_text()


def test_completion_at_module_level(tmp_path: Path) -> None:
    """Its first sentence: `rlm.completion(prompt, model)` in place of `llm.completion(…)`."""
    assert "`rlm.completion(prompt, model)`" in text_of("004")
    code = 'import rlm\nprint(rlm.completion("Say hello.", "openai/gpt-5-nano").response)'
    with endpoint(reader) as server:
        variables = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": server.url}
        done = run_python(["-c", code], tmp_path, **variables)
    assert done.stdout == "hello\n"


def test_the_citation_is_carried() -> None:
    entry = code_of("004/5")
    assert entry.strip() in (ROOT / "README.md").read_text("utf-8")
    fields = dict(re.findall(r"^  (\w+)=\{(.*)\},$", entry, re.MULTILINE))
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    for name in ("title", "year", "eprint"):
        assert fields[name] in citation
    for author in fields["author"].split(" and "):
        assert author.split()[-1] in citation


def test_the_pages_it_links_to_are_there() -> None:
    links = re.findall(r"\]\((\.\./[\w./-]+)\)", text_of("004"))
    assert len(links) == 5
    assert [
        link for link in links if not (ROOT / "docs" / "guides" / link).resolve().is_file()
    ] == []
