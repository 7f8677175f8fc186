"""001: notes on a plugin for `llm`. Its commands, scenarios and exercise, with the real `llm`."""

import json

import pytest

from rlm.testing.fake_server import Answer, FakeServer
from rlm.testing.fake_server.script import Call
from tests.seeds.cloning import Clone
from tests.seeds.reading import code_of, text_of
from tests.shape.tree import ROOT

FOLDER = "plugins/llm-rlm"
Installed = tuple[Clone, dict[str, str]]
SOURCE = ROOT / FOLDER / "llm_rlm"
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not SOURCE.is_dir(), reason=f"{FOLDER} is not in this checkout yet"),
]

SCENARIOS = '''
import json, random
import llm
from llm_rlm import RLMToolbox

said = {}


class Parrot(llm.Model):
    model_id = "parrot"
    needs_key = None

    def execute(self, prompt, stream, response, conversation):
        yield f"heard {prompt.prompt}"


llm.get_model = lambda name=None, **_: Parrot()
small = "one\\ntwo\\nthe magic number is 42\\nfour"
with RLMToolbox(context=small) as box:
    code = "import re\\nprint(re.search(r'number is (\\\\d+)', context)[1])"
    said["small"] = box.execute_python(code)

lines = [f"line {n}: nothing here" for n in range(1000)]
lines[617] = "line 617: the access code is 87654"
with RLMToolbox(context="\\n".join(lines)) as box:
    box.execute_python("import re\\nfound = re.findall(r'code is (\\\\d+)', context)")
    said["large"] = box.execute_python("print(len(context.splitlines()), found)")
    said["submitted"] = box.submit_answer(variable_name="found")
    said["answer"] = box.answer

items = ["a feline on a mat", "a dog in a park", "a bird in a tree"] * 10
with RLMToolbox(context=items) as box:
    code = "print(sum('feline' in item for item in context), len(context))"
    said["classes"] = box.execute_python(code)

primes = """
def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))
found, n = [], 2
while len(found) < 100:
    found += [n] if is_prime(n) else []
    n += 1
print(sum(found))
"""
with RLMToolbox() as box:
    said["sympy"] = box.execute_python("import sympy")
    said["primes"] = box.execute_python(primes)
    said["quote"] = box.execute_python('print("it ends with a quote"); x = "42"')
    said["long"] = len(box.execute_python("print('x' * 500_000)"))
    said["call"] = box.execute_python("print(await llm_query(prompt='one'))")
    said["batch"] = box.execute_python("print(await llm_batch(prompts=['one', 'two']))")

log = [f"INFO {n} all is well" for n in range(200)]
log[133] = "WARNING the secret password is swordfish"
with RLMToolbox(context="\\n".join(log)) as box:
    code = "print([line.split()[-1] for line in context.splitlines() if 'WARNING' in line])"
    said["log"] = box.execute_python(code)

tools = RLMToolbox.method_tools()
said["tools"] = [tool.name for tool in tools]
said["typed"] = [sorted(tool.input_schema["properties"]) for tool in tools]
print(json.dumps(said))
'''


@pytest.fixture(scope="session")
def installed(clone: Clone) -> Installed:
    """The engine and the plugin by the one command of its README, in a fresh environment."""
    active = {**clone.new_venv("llm-plugin"), "LLM_USER_PATH": str(clone.folder.parent / "llm")}
    done = clone.run(f"pip install --quiet . ./{FOLDER}", **active)
    assert done.returncode == 0, done.stdout + done.stderr
    (clone.folder.parent / "llm").mkdir()
    return clone, active


def test_the_commands_show_the_plugin_and_its_tools(clone: Clone) -> None:
    """Both lines of the exercise, after their `$`, in the plugin's folder."""
    lines = code_of("001/1").splitlines()
    assert all(line.startswith("$ uv run llm ") for line in lines)
    assert len(lines) == 2
    place = str(clone.folder.parent / "llm-uv")
    plugins, tools = (clone.run(line[2:], FOLDER, LLM_USER_PATH=place) for line in lines)
    assert plugins.returncode == tools.returncode == 0, plugins.stderr + tools.stderr
    (ours,) = (each for each in json.loads(plugins.stdout) if each["name"] == "llm-rlm")
    assert "register_tools" in ours["hooks"]
    for name in ("RLMToolbox_execute_python", "RLMToolbox_submit_answer"):
        assert name in text_of("001")
        assert name.removeprefix("RLMToolbox_") in tools.stdout
    assert "RLMToolbox" in tools.stdout


@pytest.fixture(scope="session")
def said(installed: Installed) -> dict[str, object]:
    """What the toolbox printed for the code that a model wrote in the notes."""
    clone, active = installed
    (clone.folder.parent / "scenarios.py").write_text(SCENARIOS)
    done = clone.run(f"python {clone.folder.parent / 'scenarios.py'}", **active)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_three_scenarios(said: dict[str, object]) -> None:
    assert str(said["small"]).strip() == "42"
    assert str(said["large"]).strip() == "1000 ['87654']"
    assert "87654" in str(said["answer"])
    assert str(said["classes"]).strip() == "10 30"


def test_the_exercise_on_the_command_line(said: dict[str, object]) -> None:
    """Its sum of primes and its log; a missing library is an error that the model sees."""
    assert "24133" in text_of("001")
    assert str(said["primes"]).strip() == "24133"
    assert "ModuleNotFoundError" in str(said["sympy"])
    assert "swordfish" in str(said["log"])


def test_tools_and_callbacks(said: dict[str, object]) -> None:
    assert said["tools"] == ["RLMToolbox_execute_python", "RLMToolbox_submit_answer"]
    assert said["typed"] == [["code", "context"], ["answer", "variable_name"]]
    assert "heard one" in str(said["call"])
    assert str(said["batch"]).index("heard one") < str(said["batch"]).index("heard two")


def test_code_that_ends_with_a_quote_runs_and_output_is_cut(said: dict[str, object]) -> None:
    assert "it ends with a quote" in str(said["quote"])
    assert "Error" not in str(said["quote"])
    assert isinstance(said["long"], int)
    assert 100_000 <= said["long"] < 101_000  # The document cuts output at 100,000 characters.


def test_the_exercise_through_llms_own_loop_of_tool_calls(installed: Installed) -> None:
    """`llm -m … -T RLMToolbox --td`, with a model that calls the tool and reads what it gives."""
    assert "`llm -m gpt-5.2 -T RLMToolbox --td`" in text_of("001")
    clone, active = installed
    home = clone.folder.parent / "llm"
    (home / "app.log").write_text("\n".join(["INFO well"] * 200 + ["WARNING secret: swordfish"]))
    tool, code = "RLMToolbox_execute_python", "print([x for x in context.split() if 'fish' in x])"
    called = Answer(tool_calls=(Call(tool, {"code": code}),))
    with FakeServer([called, "It is swordfish."]) as server:
        (home / "extra-openai-models.yaml").write_text(
            f"- model_id: gpt-5.2\n  model_name: m\n  api_base: {server.url}/v1\n"
            "  supports_tools: true\n"
        )
        box = json.dumps({"context_file": str(home / "app.log")})
        done = clone.run(
            f"llm -m gpt-5.2 -T 'RLMToolbox({box})' --td --no-stream 'Which secret?'",
            **{**active, "OPENAI_API_KEY": "sk-x"},
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "It is swordfish."
    first, second = (each.asked.body for each in server.requests if each.asked)
    assert tool in [each["function"]["name"] for each in first["tools"]]
    assert "INFO well" not in json.dumps([first, second])
    assert second["messages"][-1]["role"] == "tool"
    assert second["messages"][-1]["content"].strip() == "['swordfish']"
    logged = b"".join(path.read_bytes() for path in home.glob("logs.db*"))
    assert b"INFO well" not in logged
    assert b"sk-x" not in logged


def test_the_command_line_knows_it_as_an_entry_point(
    installed: Installed,
) -> None:
    clone, active = installed
    done = clone.run("llm tools; llm plugins", **active)
    assert done.returncode == 0, done.stderr
    assert "RLMToolbox" in done.stdout
    assert '"llm-rlm"' in done.stdout
