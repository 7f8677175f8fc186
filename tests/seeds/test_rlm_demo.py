"""003: a small implementation with context isolation. Its demo runs here, with every model."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from demo import demo_model
from rlm import RLM, ScriptedClient
from rlm.testing.fake_server import FakeServer
from rlm.wiring.registry import OFFLINE_MODEL, default_model
from tests.endpoint import Endpoint, endpoint
from tests.seeds.models import searcher
from tests.seeds.reading import code_of, text_of
from tests.seeds.running import run_python
from tests.shape.tree import ROOT

DEMO = str(ROOT / "demo.py")
MODELS = re.findall(r"^RLM_MODEL=(\S+) uv run python demo\.py$", code_of("003/4"), re.MULTILINE)
WITH = {
    "groq": {"GROQ_API_KEY": "gsk_x", "GROQ_BASE_URL": "{url}"},
    "ollama": {"OLLAMA_HOST": "127.0.0.1:{port}"},
    "gemini": {"GEMINI_API_KEY": "g", "GEMINI_BASE_URL": "{root}"},
    "gpt-4o": {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "{url}"},
}
"""By the word before the slash: what sends that provider's requests to us."""


def filled(text: str, server: Endpoint | FakeServer) -> str:
    if isinstance(server, FakeServer):
        return text.format(root=server.url)
    return text.format(url=server.url, port=server.port)


def variables_of(model: str, server: Endpoint | FakeServer) -> dict[str, str]:
    needed = WITH[model.partition("/")[0]]
    return {name: filled(text, server) for name, text in needed.items()}


GROQ, OPENAI = {"GROQ_API_KEY": "gsk_x"}, {"OPENAI_API_KEY": "sk-x"}


@pytest.mark.parametrize(
    ("given", "model"),
    [
        (GROQ | OPENAI, "groq/llama-3.3-70b-versatile"),
        (OPENAI | {"GROQ_API_KEY": ""}, default_model(OPENAI)),
        (GROQ | OPENAI | {"RLM_MODEL": "gpt-4o"}, "gpt-4o"),
        ({}, OFFLINE_MODEL),
    ],
)
def test_the_demo_prefers_groq(given: dict[str, str], model: str) -> None:
    assert demo_model(given) == model
    if given == GROQ | OPENAI:
        assert default_model(given) != model  # Elsewhere the order of providers holds.


BESIDE = "Thought: I compute.\n```python\nx = 6 * 7\nprint('done')\n```\nFinal Answer: 4177"


def test_a_final_answer_beside_code_ends_a_run_with_model_name() -> None:
    client = ScriptedClient([BESIDE, "FINAL(later)"])
    with RLM(model_name=client) as rlm:
        result = rlm.ask("What?", "")
    assert (result.answer, result.steps, len(client.requests)) == ("4177", 1, 1)
    assert [type(e).__name__ for e in result.events].count("CellEnded") == 1


def test_failed_code_is_shown_to_the_model_before_a_final_answer_counts() -> None:
    client = ScriptedClient([BESIDE.replace("print('done')", "1 / 0"), "Final Answer: repaired"])
    with RLM(model_name=client) as rlm:
        assert rlm.ask("What?", "").answer == "repaired"


def test_without_model_name_an_answer_that_was_not_printed_is_questioned_once() -> None:
    with RLM(ScriptedClient([BESIDE, "Final Answer: sure"])) as rlm:
        assert rlm.ask("What?", "").answer == "sure"


def test_model_name_beside_another_model_is_refused() -> None:
    with pytest.raises(TypeError, match="two models"):
        RLM("openai/gpt-4o", model_name="gpt-4o")
    with RLM(model_name="gpt-4o", variables=OPENAI) as rlm:
        assert rlm.config.model.endswith("gpt-4o")


def test_the_document_has_a_model_line_for_each_of_four_providers() -> None:
    assert [model.partition("/")[0] for model in MODELS] == list(WITH)


FIRST, *OTHERS = (each for each in MODELS if "gemini" not in each)


@pytest.mark.parametrize(
    "model_name", [FIRST, *(pytest.param(each, marks=pytest.mark.heavy) for each in OTHERS)]
)
def test_the_demo_with_a_model_shows_a_real_child(tmp_path: Path, model_name: str) -> None:
    with endpoint(searcher) as server:
        given = variables_of(model_name, server)
        done = run_python([DEMO], tmp_path, RLM_MODEL=model_name, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right: the needle says 3077052" in done.stdout
    assert "Child:    'What is the access code for 26f2a74de4?' → '3077052'" in done.stdout
    name = model_name.partition("/")[2] or model_name
    assert {body["model"] for body in server.bodies} == {name}


@pytest.mark.heavy
def test_the_demo_with_a_gemini_key(tmp_path: Path) -> None:
    (model_name,) = (each for each in MODELS if "gemini" in each)
    with FakeServer(
        rules=[("", lambda asked: searcher({"messages": [{"content": asked.text}]}))]
    ) as server:
        given = variables_of(model_name, server)
        done = run_python([DEMO], tmp_path, RLM_MODEL=model_name, **given)
    assert "right: the needle says 3077052" in done.stdout, done.stdout + done.stderr
    assert {each.path.rpartition(":")[0] for each in server.requests} == {
        "/v1beta/models/gemini-2.0-flash"
    }


def test_make_demo_plays_a_script_whatever_keys_are_set(tmp_path: Path) -> None:
    # This test may itself be started by make, which leaves its options in the environment.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def planned(*arguments: str, **more: str) -> str:
        make = ("make", "--dry-run", "demo", *arguments)
        done = subprocess.run(
            make, cwd=ROOT, env={**variables, **more}, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()[-1]

    used = {"MODEL": "gpt-4o", "RLM_MODEL": "gpt-4o", "OPENAI_API_KEY": "sk-x"}
    assert planned(**used).endswith("demo.py --scripted")
    assert planned("MODEL=groq/x").endswith("demo.py --model groq/x")
    with endpoint(searcher) as server:
        given = {"RLM_MODEL": "gpt-4o", **variables_of("gpt-4o", server)}
        done = run_python([DEMO, "--scripted"], tmp_path, **given)
        assert "right: the needle says 3077052" in done.stdout, done.stdout + done.stderr
        assert "Model:    none: a script plays its part" in done.stdout
        assert server.bodies == []
        done = run_python([DEMO, "--model", "gpt-4o"], tmp_path, **variables_of("gpt-4o", server))
        assert "Model:    gpt-4o" in done.stdout
        assert server.bodies != []


def test_the_demo_reads_a_key_from_dot_env(tmp_path: Path) -> None:
    with endpoint(searcher) as server:
        (tmp_path / ".env").write_text(f"{code_of('003/2')}\nGROQ_BASE_URL={server.url}\n")
        done = run_python([DEMO], tmp_path)
    assert "Model:    groq/llama-3.3-70b-versatile" in done.stdout
    assert set(server.keys) == {"Bearer gsk_your_key_here"}


def test_no_request_of_the_demo_holds_the_whole_task(tmp_path: Path) -> None:
    """A short root prompt, and a child with a fresh history: no request is anywhere near 10 MB."""
    with endpoint(searcher) as server:
        done = run_python([DEMO], tmp_path, RLM_MODEL="gpt-4o", **variables_of("gpt-4o", server))
    assert done.returncode == 0
    assert max(len(str(body["messages"])) for body in server.bodies) < 20_000
    firsts = [body for body in server.bodies if len(body["messages"]) == 2]
    assert len(firsts) == 2  # the root's first request and the child's: neither has a history


def test_the_python_that_is_needed() -> None:
    """The document says 3.10; here it is one newer, and the project file says so."""
    assert "**Python 3.10+**" in text_of("003")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"


def test_the_files_of_the_tree() -> None:
    """Its entry point and its project file are at the root; the package is in `src`."""
    tree = code_of("003/5")
    names = re.findall(r"── ([\w.]+/?)", tree)
    assert names == ["demo.py", "pyproject.toml", "rlm/", "__init__.py", "core.py", "sandbox.py"]
    assert (ROOT / "demo.py").is_file()
    assert (ROOT / "pyproject.toml").is_file()
    assert (ROOT / "src" / "rlm" / "__init__.py").is_file()
    assert (ROOT / "src" / "rlm" / "engine" / "loop.py").is_file()  # its core.py
    assert (ROOT / "src" / "rlm" / "environments" / "local").is_dir()  # its sandbox.py
