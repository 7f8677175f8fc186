"""Harbor's own ACP client, the program that its `acp` agent runs in a container, and `rlm acp`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import harbor.agents.installed
from tasks import cell

from rlm.testing.fake_server import FakeServer

RUNNER = Path(next(iter(harbor.agents.installed.__path__))) / "acp_runner.py"
SECONDS = 120


def test_harbors_acp_client_can_ask_rlm_acp(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("The code is 4471902.\n")
    launcher = tmp_path / "launch"
    program = Path(sys.executable).parent / "rlm"
    launcher.write_text(f"#!/bin/sh\nexec {program} acp -m openai/gpt-5-mini\n")
    launcher.chmod(0o755)
    # Beside other modules of Harbor, it would take `acp.py` for the SDK.
    runner = shutil.copy(RUNNER, tmp_path / "runner.py")
    with FakeServer([cell("print(list(context))"), cell("FINAL(context['a.txt'])")]) as server:
        done = subprocess.run(
            (
                *(sys.executable, str(runner), "--instruction", "Which code?"),
                *("--logs-dir", str(tmp_path / "logs"), "--launcher", str(launcher)),
            ),
            cwd=workspace,
            env={
                **os.environ,
                "HOME": str(tmp_path),
                "OPENAI_API_KEY": "fake",
                "OPENAI_BASE_URL": server.openai_url,
                "RLM_STATE_DIR": str(tmp_path / "state"),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    assert done.returncode == 0, done.stderr
    assert "The code is 4471902." in done.stdout
    summary = json.loads((tmp_path / "logs" / "acp-summary.json").read_text())
    assert summary["prompt_response"]["stopReason"] == "end_turn"
    assert summary["agent_info"]["name"] == "rlm"
    assert server.count == 2
