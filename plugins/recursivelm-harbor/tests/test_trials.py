"""A real `harbor run` of one tiny task, in a real container, with a scripted model."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from container import make_image
from harbor.models.trajectories import Trajectory
from tasks import CELLS, cell, make_task

from rlm.testing.fake_server import FakeServer

pytestmark = pytest.mark.docker
BIN = Path(sys.executable).parent
SECONDS = 300


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    make_image()


def harbor(
    folder: Path, server: FakeServer, *options: str, seconds: float = 120.0
) -> tuple[str, Path, dict[str, Any]]:
    """Run the task; return what was printed, the folder of the trial, and its result."""
    task = make_task(folder, seconds)
    command = (str(BIN / "harbor"), "run", "--path", str(task), "--jobs-dir", str(folder / "jobs"))
    places = ("--environment-import-path", "container:ContainerEnvironment", "--yes", "--quiet")
    done = subprocess.run(
        (*command, *places, *options),
        cwd=folder,
        env={
            **os.environ,
            "DO_NOT_TRACK": "1",
            "HARBOR_TELEMETRY": "0",
            "HOME": str(folder),
            "OPENAI_API_KEY": "fake",
            "OPENAI_BASE_URL": server.openai_url,
            "PYTHONPATH": str(Path(__file__).parent),
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [result] = (folder / "jobs").glob("*/note*/result.json")
    return done.stdout, result.parent, json.loads(result.read_text())


OURS = ("--agent-import-path", "recursivelm_harbor:RlmAgent", "--model", "openai/gpt-5-mini")


def test_harbor_runs_a_task_and_reports_its_cost(tmp_path: Path) -> None:
    with FakeServer([cell(code) for code in CELLS]) as server:
        printed, trial, result = harbor(tmp_path, server, *OURS)
    print(printed)
    assert result["exception_info"] is None, result["exception_info"]
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}
    assert result["agent_info"]["name"] == "rlm"
    used = result["agent_result"]
    assert server.count == 3
    assert used["n_input_tokens"] > used["n_output_tokens"] > 0
    assert used["cost_usd"] > 0
    assert used["metadata"]["steps"] == 3
    assert used["metadata"]["requests"] == 3
    assert used["metadata"]["answer"] == "I wrote the sum."
    [log] = (trial / "agent" / "rlm").glob("*.jsonl")
    assert '"tool_called"' in log.read_text()
    saved = Trajectory.model_validate_json((trial / "agent" / "trajectory.json").read_text())
    assert [step.source for step in saved.steps] == ["user", "agent", "agent", "agent"]
    observation = saved.steps[2].observation
    assert observation is not None
    assert "5050" in str(observation.results[0].content)


def test_usage_is_kept_after_a_timeout(tmp_path: Path) -> None:
    endless: list[Any] = [cell("print(shell('echo hi')['stdout'])"), {"behaviour": "never"}]
    with FakeServer(endless) as server:
        _, trial, result = harbor(tmp_path, server, *OURS, seconds=15.0)
    assert result["exception_info"]["exception_type"] == "AgentTimeoutError"
    assert result["agent_result"]["n_input_tokens"] > 0
    saved = Trajectory.model_validate_json((trial / "agent" / "trajectory.json").read_text())
    assert len(saved.steps) == 2
