"""000: the elizaOS plugin. Its commands and its Python, on the real runtime, as written."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlm.testing.fake_server import Answer, Asked, FakeServer
from tests.seeds.cloning import Clone
from tests.seeds.reading import code_of, text_of
from tests.seeds.running import run_python
from tests.shape.tree import ROOT

FOLDER = "plugins/plugin-rlm"
Installed = tuple[Clone, dict[str, str]]
Generated = tuple[dict[str, Any], list[dict[str, Any]]]
SOURCE = ROOT / FOLDER / "elizaos_plugin_rlm"
heavy = pytest.mark.heavy
needs_plugin = pytest.mark.skipif(
    not SOURCE.is_dir(), reason=f"{FOLDER} is not in this checkout yet"
)

BEFORE = """
import asyncio
import functools
import json

from typing import Any, Dict

from elizaos import AgentRuntime
from elizaos.types import plugin as plugins
from elizaos.types.runtime import IAgentRuntime


async def main():
    said = {{}}
    Plugin = plugins.Plugin
{code}
    print(json.dumps(said))


asyncio.run(main())
"""

START = """
runtime = AgentRuntime(plugins=[plugin], log_level="ERROR")
await runtime.initialize()
"""


def program(*parts: str) -> str:
    """Blocks and what joins them, one after the other in one coroutine."""
    lines = "\n".join(parts).splitlines()
    return BEFORE.format(code="\n".join(f"    {line}" if line else "" for line in lines))


# -- what needs nothing ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["000/1", "000/3"])
def test_the_backend_is_imported_as_documented(tmp_path: Path, name: str) -> None:
    done = run_python(["-c", code_of(name) + "\nprint(RLM.__module__)"], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "rlm.api\n", "")


@needs_plugin
def test_the_files_are_where_the_document_says() -> None:
    tree = code_of("000/9")
    first, *lines = tree.splitlines()
    assert first == f"{FOLDER}/"
    inside = ""
    for line in lines:
        name = re.search(r"─ ([\w./]+)", line)
        assert name is not None, line
        inside = inside if line.startswith("│") else ""
        assert (ROOT / FOLDER / inside / name[1]).exists(), line
        inside = name[1] if name[1].endswith("/") else inside


@needs_plugin
def test_no_model_is_registered_imperatively() -> None:
    assert "**No imperative calls to `runtime.register_model(...)` are performed.**" in text_of(
        "000"
    )
    sources = [path.read_text("utf-8") for path in SOURCE.rglob("*.py")]
    assert sources
    assert not [text for text in sources if "register_model(" in text]


@needs_plugin
def test_no_code_of_the_engine_is_vendored() -> None:
    ours = {path.read_bytes() for path in (ROOT / "src").rglob("*.py") if path.stat().st_size > 200}
    assert not [path for path in SOURCE.rglob("*.py") if path.read_bytes() in ours]


@needs_plugin
def test_it_is_python_alone() -> None:
    kinds = {path.suffix for path in (ROOT / FOLDER).rglob("*") if path.is_file()}
    assert kinds.isdisjoint({".ts", ".tsx", ".js", ".rs", ".mjs"})


@needs_plugin
def test_the_licence_is_mit() -> None:
    assert text_of("000").splitlines()[-1] == "MIT"
    project = tomllib.loads((ROOT / FOLDER / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["license"] == "MIT"


# -- installed with pip, without an engine ---------------------------------------------------------


@pytest.fixture(scope="session")
def bare(clone: Clone) -> Installed:
    """A fresh environment in which the document's installation was executed, and nothing else."""
    active = clone.new_venv("plugin-alone")
    done = clone.run(code_of("000/2"), **active)
    assert done.returncode == 0, done.stdout + done.stderr
    return clone, active


@heavy
@needs_plugin
def test_the_plugin_is_installed_with_pip(bare: Installed) -> None:
    clone, active = bare
    done = clone.run(
        "cd /; python -c 'import elizaos_plugin_rlm as p; print(p.plugin.name)'", **active
    )
    assert (done.returncode, done.stdout) == (0, "plugin-rlm\n"), done.stderr
    missing = clone.run("cd /; python -c 'import rlm'", **active)
    assert "No module named 'rlm'" in missing.stderr


@heavy
@needs_plugin
def test_the_stub_says_exactly_this(bare: Installed) -> None:
    """Without an engine it loads, answers, and raises nothing; every time the same."""
    clone, active = bare
    ask = 'said[str(n)] = await runtime.use_model("TEXT_LARGE", {"prompt": "Hello"})'
    code = program(code_of("000/4"), START, f"for n in range(2): {ask}", "await runtime.stop()")
    (clone.folder.parent / "stub.py").write_text(code)
    done = clone.run(f"python {clone.folder.parent / 'stub.py'}", **active)
    assert done.returncode == 0, done.stderr
    expected = json.loads(code_of("000/11").strip())
    assert expected == "[RLM STUB] RLM backend not available"
    assert json.loads(done.stdout.splitlines()[-1]) == {"0": expected, "1": expected}


# -- with the engine -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def whole(clone: Clone) -> Installed:
    """The plugin and the engine, from this repository, in a fresh environment."""
    active = clone.new_venv("plugin-and-engine")
    done = clone.run(f"pip install --quiet -e . -e ./{FOLDER}", **active)
    assert done.returncode == 0, done.stdout + done.stderr
    return clone, active


DESCRIBED = """
try:
    Plugin(name="plugin-rlm", models={})
except ValueError as error:
    said["missing"] = [each["loc"][0] for each in error.errors()]
Plugin = functools.partial(Plugin, description="elizaOS wants one, the document has none")
"""
TOLD = """
said["plain"] = plain
said["forced"] = response
said["forced second name"] = await runtime.use_model(
    ModelType.TEXT_LARGE, {"prompt": "Hello, world!"}, provider="plugin-rlm"
)
types = ["TEXT_SMALL", "TEXT_LARGE", "TEXT_REASONING_SMALL", "TEXT_REASONING_LARGE"]
for name in [*types, "TEXT_COMPLETION"]:
    said[name] = await runtime.use_model(getattr(ModelType, name), {"prompt": "Hello, world!"})
said["the handler of the document gives"] = str(await handle_text_generation(runtime, {}))
from elizaos_plugin_rlm.plugin import RLMClient, handle_text_generation, plugin_init
"""
LAST = """
said["declared"] = sorted(plugin.models)
stop = params.pop("stopSequences")
said["ellipsis"] = stop == [...]
params["stopSequences"] = ["END"]
said["all parameters"] = await runtime.use_model(ModelType.TEXT_LARGE, params)
await runtime.stop()
"""


@heavy
@needs_plugin
def test_python_of_the_document_on_the_real_runtime(whole: Installed) -> None:
    """Six blocks in one program, in their order; the backend's model is a fake server."""
    clone, active = whole
    code = program(
        *(code_of("000/4"), START, code_of("000/5"), "plain = response", code_of("000/6")),
        *(code_of("000/7"), TOLD, DESCRIBED, code_of("000/10"), code_of("000/8"), LAST),
    )
    (clone.folder.parent / "documented.py").write_text(code)
    with FakeServer(rules=[("", "Final Answer: generated text")]) as server:
        given = {**active, **server.variables, "ELIZA_RLM_BACKEND": "openai"}
        done = clone.run(f"python {clone.folder.parent / 'documented.py'}", **given)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said.pop("the handler of the document gives") == "None"  # its body is `...`
    assert said.pop("ellipsis") is True
    assert said.pop("missing") == ["description"]
    assert len(said.pop("declared")) == 5
    assert set(said.values()) == {"generated text"}
    assert len(said) == 9
    assert server.count == 9


@heavy
@needs_plugin
def test_the_variables_and_their_defaults(whole: Installed) -> None:
    """The table of the configuration section, row by row."""
    rows = dict(re.findall(r"^\| `(ELIZA_RLM_\w+)` \| `(\w+)` \|", text_of("000"), re.MULTILINE))
    assert len(rows) == 5
    clone, active = whole
    code = "import json, dataclasses, elizaos_plugin_rlm as p\nc = p.RLMConfig.from_environment()\n"
    code += (
        "print(json.dumps([c.backend, c.environment, c.max_iterations, c.max_depth, c.verbose]))"
    )
    defaults = clone.run(f"python -c '{code}'", **active)
    assert json.loads(defaults.stdout) == [
        json.loads(v) if v in {"4", "1", "false"} else v for v in rows.values()
    ]
    other = dict(zip(rows, ("openai", "docker", "9", "2", "true"), strict=True))
    changed = clone.run(f"python -c '{code}'", **active, **other)
    assert json.loads(changed.stdout) == ["openai", "docker", 9, 2, True]


GENERATED = """
from types import SimpleNamespace
from elizaos.types.model import ModelType
from elizaos_plugin_rlm.plugin import plugin_init

double = SimpleNamespace()
await plugin_init({"ELIZA_RLM_BACKEND": "openai"}, double)
said["stored"] = list(vars(double).values())
params = {
    "prompt": "FROM THE PROMPT",
    "messages": [{"role": "user", "content": "FROM THE MESSAGES"}],
    "system": "SYSTEM WORDS",
    "maxTokens": 1000,
    "temperature": 0.7,
    "topP": 0.9,
    "stopSequences": ["END"],
}
ticks = []


async def tick():
    while True:
        ticks.append(1)
        await asyncio.sleep(0.01)


ticking = asyncio.create_task(tick())
said["generated"] = await runtime.use_model(ModelType.TEXT_LARGE, params)
ticking.cancel()
said["ticks"] = len(ticks)
said["next"] = await runtime.use_model(ModelType.TEXT_SMALL, {"prompt": "PLAIN"})
params = {"prompt": "REFUSE", "temperature": 2}
said["failed"] = await runtime.use_model(ModelType.TEXT_LARGE, params)
await runtime.stop()
"""


def generating(asked: Asked) -> Answer:
    """Shows what is in `context`; a request at temperature 2 fails, whatever is left out of it."""
    if asked.body.get("temperature") == 2:
        return Answer(status=401, error="no such key")
    return Answer(reply="```repl\nFINAL(str(context))\n```", delay_seconds=0.3)


@pytest.fixture(scope="session")
def generated(
    whole: Installed,
) -> Generated:
    """What the plugin gave for several requests, and the bodies that reached the model."""
    clone, active = whole
    code = program(code_of("000/4"), START, GENERATED)
    (clone.folder.parent / "generated.py").write_text(code)
    with FakeServer(rules=[("", generating)]) as server:
        given = {**active, **server.variables, "ELIZA_RLM_BACKEND": "openai"}
        done = clone.run(f"python {clone.folder.parent / 'generated.py'}", **given)
    assert done.returncode == 0, done.stdout + done.stderr
    bodies = [each.asked.body for each in server.requests if each.asked]
    return json.loads(done.stdout.splitlines()[-1]), bodies


@heavy
@needs_plugin
def test_messages_override_the_prompt_and_system_is_not_injected(generated: Generated) -> None:
    said, bodies = generated
    assert "FROM THE MESSAGES" in said["generated"]
    assert "FROM THE PROMPT" not in said["generated"]
    assert "SYSTEM WORDS" not in json.dumps(bodies)
    assert "SYSTEM WORDS" in said["generated"]  # kept with the messages, not lost


@heavy
@needs_plugin
def test_generation_controls_are_forwarded_and_forgotten(generated: Generated) -> None:
    said, bodies = generated
    first = bodies[0]
    assert (first["temperature"], first["top_p"], first["stop"]) == (0.7, 0.9, ["END"])
    assert 1000 in first.values()
    (plain,) = (body for body in bodies if "temperature" not in body)
    assert "stop" not in plain
    assert said["next"] == "PLAIN"


@heavy
@needs_plugin
def test_generating_does_not_block_the_event_loop(generated: Generated) -> None:
    assert generated[0]["ticks"] > 3


@heavy
@needs_plugin
def test_a_failing_request_is_a_text_and_no_exception(generated: Generated) -> None:
    assert generated[0]["failed"].startswith("[RLM ERROR] ")


@heavy
@needs_plugin
def test_plugin_init_stores_the_configuration_and_nothing_else(generated: Generated) -> None:
    assert generated[0]["stored"] == [{"ELIZA_RLM_BACKEND": "openai"}]


@heavy
@needs_plugin
def test_a_backend_that_can_not_start_is_the_stub_too(whole: Installed) -> None:
    """The engine is installed, but there is no key."""
    clone, active = whole
    ask = 'said["text"] = await runtime.use_model("TEXT_LARGE", {"prompt": "Hello"})'
    code = program(code_of("000/4"), START, ask, "await runtime.stop()")
    (clone.folder.parent / "keyless.py").write_text(code)
    done = clone.run(f"python {clone.folder.parent / 'keyless.py'}", **active)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "text": json.loads(code_of("000/11").strip())
    }


@heavy
@needs_plugin
def test_other_runtimes_reach_it_by_lines_of_json(whole: Installed) -> None:
    clone, active = whole
    lines = [
        {"id": "a", "method": "infer", "params": {"prompt": "Hello"}},
        {"id": 2, "method": "status"},
        {"id": 3, "method": "nonsense"},
    ]
    requests = "\n".join(map(json.dumps, lines))
    with FakeServer(rules=[("", "Final Answer: generated text")]) as server:
        given = {**active, **server.variables, "ELIZA_RLM_BACKEND": "openai"}
        command = f"python -m elizaos_plugin_rlm.server <<'END'\n{requests}\nEND"
        done = clone.run(command, **given)
    assert done.returncode == 0, done.stderr
    answers = {
        each["id"]: each for each in map(json.loads, done.stdout.splitlines()) if "id" in each
    }
    assert "generated text" in json.dumps(answers["a"]["result"])
    assert "result" in answers[2]
    assert "error" in answers[3]


@heavy
@needs_plugin
def test_the_development_commands(whole: Installed) -> None:
    """pip, pytest, mypy and ruff, as one block, in the plugin's folder."""
    clone, active = whole
    done = clone.run(code_of("000/12"), FOLDER, **active)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
    assert "Success: no issues found" in done.stdout
    assert "All checks passed!" in done.stdout
