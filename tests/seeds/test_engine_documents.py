"""The code of the documents that describe an engine like this one, run as they show it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm.fake_server import FakeServer
from tests.endpoint import Endpoint, endpoint, texts

ROOT = Path(__file__).parents[2]
POWERS = "\n".join(str(2**n) for n in range(100))

CONSTRUCTOR = """
from rlm import RLM

rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-5-nano"},
    environment="local",  # or "docker", "modal", "prime"
)
print(rlm.completion("Print the first 100 powers of two, each on a newline.").response)
"""

LOGGED = """
from rlm.logger import RLMLogger
from rlm import RLM

logger = RLMLogger(log_dir="./logs")
rlm = RLM(backend="openai", backend_kwargs={"model_name": "gpt-5-nano"}, logger=logger)
print(rlm.completion("Say hello.").response)
"""

MODULE_LEVEL = """
import rlm

print(rlm.completion("Say hello.", "openai/gpt-5-nano").response)
"""


AGENT = """
from rlm import create_enforced_agent

agent = create_enforced_agent(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4"},
)
agent.register_tool("search_web", lambda q: f"Searching for {q}...")
agent.add_context("user_info", {"name": "Alex"})

async for chunk in agent.chat("Analyze this document", stream=True):
    print(chunk, end="")
"""

AS_IN_A_NOTEBOOK = """
import ast, asyncio, sys

code = compile(sys.argv[1], "<notebook>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
asyncio.run(eval(code, {}))
"""


def run(arguments: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**keep, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def model(body: dict[str, Any]) -> str:
    """A capable reader: it looks at its task first, and then does it."""
    said = texts(body)
    if "powers of two" in said:
        return "```repl\nFINAL('\\n'.join(str(2**n) for n in range(100)))\n```"
    if "Analyze this document" in said:
        return (
            "```repl\nstream_output(f\"{context_data['user_info']['name']}: \")\n"
            "stream_output(search_web('rlm'))\nFINAL('Done.')\n```"
        )
    if "Say hello." in said:
        return "Final Answer: hello"
    return "```repl\nprint(context)\n```"


def test_the_constructor_example(tmp_path: Path) -> None:
    with endpoint(model) as server:
        done = run(["-c", CONSTRUCTOR], tmp_path, OPENAI_API_KEY="sk-x", OPENAI_BASE_URL=server.url)
    assert done.stderr == ""
    assert done.stdout.strip() == POWERS
    assert {body["model"] for body in server.bodies} == {"gpt-5-nano"}
    assert set(server.keys) == {"Bearer sk-x"}
    assert "powers of two" not in texts(server.bodies[0])  # the task is in `context`


def test_the_agent_example(tmp_path: Path) -> None:
    with endpoint(model) as server:
        variables = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": server.url}
        done = run(["-c", AS_IN_A_NOTEBOOK, AGENT], tmp_path, **variables)
    assert done.stderr == ""
    assert done.stdout == "Alex: Searching for rlm...Done."
    assert {body["model"] for body in server.bodies} == {"gpt-4"}
    assert "`search_web(q)`" in texts(server.bodies[0])
    assert "Alex" not in texts(server.bodies[0])


def test_the_logger_example(tmp_path: Path) -> None:
    with endpoint(model) as server:
        done = run(["-c", LOGGED], tmp_path, OPENAI_API_KEY="sk-x", OPENAI_BASE_URL=server.url)
    assert done.stdout == "hello\n"
    assert len(list((tmp_path / "logs").glob("*.jsonl"))) == 1
    assert "sk-x" not in next((tmp_path / "logs").iterdir()).read_text()


def test_completion_at_module_level(tmp_path: Path) -> None:
    with endpoint(model) as server:
        done = run(
            ["-c", MODULE_LEVEL], tmp_path, OPENAI_API_KEY="sk-x", OPENAI_BASE_URL=server.url
        )
    assert done.stdout == "hello\n"


def searcher(body: dict[str, Any]) -> str:
    """Finds the needle with code, lets a child run read it, and ends in prose."""
    said = texts(body)
    (key,) = set(re.findall(r"access code for (\w+)\?", said)) or {""}
    if "a str of 9,996" in said:
        if "CHILD SAYS" in said:
            return "Final Answer: " + said.split("CHILD SAYS ")[-1].split()[0]
        return (
            f"```repl\nline = ctx.grep({key!r})[0]\n"
            f"child = rlm_query('What is the access code for {key}?', context=line)\n"
            "print('CHILD SAYS', child)\n```"
        )
    return "```repl\nimport re\nFINAL(re.findall(r'\\d{7}', context)[-1])\n```"


@pytest.mark.parametrize(
    ("model_name", "variables"),
    [
        ("groq/llama-3.3-70b-versatile", {"GROQ_API_KEY": "gsk_x", "GROQ_BASE_URL": "{url}"}),
        ("ollama/llama3", {"OLLAMA_HOST": "127.0.0.1:{port}"}),
        ("gpt-4o", {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": "{url}"}),
    ],
)
def test_the_demo_with_a_model_shows_a_real_child(
    tmp_path: Path, model_name: str, variables: dict[str, str]
) -> None:
    with endpoint(searcher) as server:
        given = {name: filled(text, server) for name, text in variables.items()}
        done = run([str(ROOT / "demo.py")], tmp_path, RLM_MODEL=model_name, **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right: the needle says 3077052" in done.stdout
    assert "Child:    'What is the access code for 26f2a74de4?' → '3077052'" in done.stdout
    name = model_name.partition("/")[2] or model_name
    assert {body["model"] for body in server.bodies} == {name}


def test_the_demo_with_a_gemini_key(tmp_path: Path) -> None:
    with FakeServer(
        rules=[("", lambda asked: searcher({"messages": [{"content": asked.text}]}))]
    ) as server:
        variables = {"GEMINI_API_KEY": "g", "GEMINI_BASE_URL": server.url}
        done = run(
            [str(ROOT / "demo.py")], tmp_path, RLM_MODEL="gemini/gemini-2.0-flash", **variables
        )
    assert "right: the needle says 3077052" in done.stdout, done.stdout + done.stderr
    assert {each.path.rpartition(":")[0] for each in server.requests} == {
        "/v1beta/models/gemini-2.0-flash"
    }


def test_the_demo_reads_a_key_from_dot_env(tmp_path: Path) -> None:
    with endpoint(searcher) as server:
        lines = f"GROQ_API_KEY=gsk_your_key_here\nGROQ_BASE_URL={server.url}\n"
        (tmp_path / ".env").write_text(lines)
        done = run([str(ROOT / "demo.py")], tmp_path)
    assert "Model:    groq/llama-3.3-70b-versatile" in done.stdout
    assert set(server.keys) == {"Bearer gsk_your_key_here"}


def filled(text: str, server: Endpoint) -> str:
    return text.format(url=server.url, port=server.port)
