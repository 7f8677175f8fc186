"""The real `vf-eval` with rollouts on the engine: rewards, branches, lineage, failures."""

from pathlib import Path

from rollouts import EXAMPLE, vf_eval

from rlm.bench import find_tasks

TASKS = 20
SCRIPT = """
import os, subprocess, sys
from rlm.testing.fake_server import Answer, FakeServer

with FakeServer(%s) as server:
    filled = [part.replace("$FAKE_BASE_URL", server.openai_url) for part in sys.argv[1:]]
    done = subprocess.run(filled, env={**os.environ, "FAKE_API_KEY": "fake"})
    print("server requests:", server.count)
sys.exit(done.returncode)
"""


def served(folder: Path, script: str) -> Path:
    """Write a program like the example, whose model follows another script."""
    path = folder / "model.py"
    path.write_text(SCRIPT % script)
    return path


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def test_twenty_generated_tasks_are_all_solved(tmp_path: Path) -> None:
    n = str(TASKS)
    printed, episodes = vf_eval(
        tmp_path, "--env.taskset.tasks", "s-niah/single", "--env.taskset.n", n
    )
    assert printed.count("reward=1.000") == TASKS
    traces = [trace for episode in episodes for trace in episode.traces]
    assert [trace.rewards["bench_score"].score for trace in traces] == [1.0] * TASKS
    assert all(trace.metrics["rlm_submitted"] == 1.0 for trace in traces)
    assert {trace.metrics["rlm_requests"] for trace in traces} == {2.0}
    assert {len(trace.calls) for trace in traces} == {2}, "nothing is asked besides the run"
    assert sorted(trace.task.data.seed for trace in traces) == list(range(TASKS))


def test_a_trace_contains_only_the_preview_of_a_context(tmp_path: Path) -> None:
    options = ("--env.taskset.tasks", "s-niah/single", "--env.taskset.n", "1")
    printed, _ = vf_eval(tmp_path, *options)
    [file] = (tmp_path / "out").glob("*/traces.jsonl")
    sample = find_tasks("s-niah/single")["s-niah/single"].generate(0, 8_000)
    inside = sample.context[10_000:10_100]
    for text in (printed, file.read_text("utf-8")):
        assert sample.context[:50] in text, "the preview of the prompt is there"
        assert inside not in text


def test_steps_form_one_branch_and_each_call_has_its_own(tmp_path: Path) -> None:
    first = cell("a = llm_query('one')\nb = llm_query('two')\nprint(a, b)")
    script = [first, "1", "2", cell("FINAL('5997171')")]
    options = ("--env.taskset.tasks", "s-niah/single", "--env.taskset.n", "1")
    _, [episode] = vf_eval(tmp_path, *options, example=served(tmp_path, repr(script)))
    [trace] = episode.traces
    assert trace.num_branches == 3
    assert sorted(len(branch.calls) for branch in trace.branches) == [1, 1, 2]
    assert all(branch.trainable for branch in trace.branches)
    names = {call.node: call.acp.request_id for call in trace.calls if call.acp is not None}
    assert len(set(names.values())) == 4
    links = {
        (names[link.node].split(".")[0], link.type, names[number].split(".")[0])
        for number, node in enumerate(trace.nodes)
        for link in node.semantic_parents
    }
    assert links == {
        ("step", "continuation", "step"),
        ("step", "subagent_call", "llm"),
        ("llm", "subagent_return", "step"),
    }


def test_a_retried_request_makes_one_turn(tmp_path: Path) -> None:
    script = "[Answer(status=503), " + repr(cell("FINAL('x')")) + "]"
    options = ("--env.taskset.tasks", "s-niah/single", "--env.taskset.n", "1")
    printed, [episode] = vf_eval(tmp_path, *options, example=served(tmp_path, script))
    [trace] = episode.traces
    assert trace.num_turns == 1
    assert trace.rewards["bench_score"].score == 0.0, "a wrong answer has no reward"
    assert "server requests: 2" in printed


def test_limits_of_the_harness_and_of_verifiers_are_enforced(tmp_path: Path) -> None:
    looks = served(tmp_path, f"[{cell('print(1)')!r}], loop=True")
    tasks = ("--env.taskset.tasks", "s-niah/single", "--env.taskset.n", "1")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    own = ("--env.agent.harness.max-steps", "3")
    _, [episode] = vf_eval(tmp_path / "a", *tasks, *own, example=looks)
    [trace] = episode.traces
    assert (trace.info["rlm"]["limit"], trace.metrics["rlm_steps"]) == ("steps", 3.0)
    assert trace.metrics["rlm_submitted"] == 0.0
    theirs = ("--env.agent.max-turns", "2")
    _, [episode] = vf_eval(tmp_path / "b", *tasks, *theirs, example=looks)
    [trace] = episode.traces
    assert trace.stop_condition == "max_turns"
    assert trace.num_turns == 2


def test_the_readme_uses_the_example_model() -> None:
    readme = EXAMPLE.parents[1] / "README.md"
    assert "examples/fake_model.py" in readme.read_text("utf-8")
