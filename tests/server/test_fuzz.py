"""Whatever the OpenAPI document allows or forbids, sent to a real server by schemathesis."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlm.testing.fake_server import Answer, FakeServer
from tests.cli.running import environment
from tests.server.command import served
from tests.server.serving import submits

pytestmark = pytest.mark.heavy

TOKEN = "token-of-the-tests"
EXAMPLES = int(os.environ.get("RLM_FUZZ_EXAMPLES", "12"))
SEED = "4711"


def test_no_request_breaks_the_server(tmp_path: Path) -> None:
    pytest.importorskip(
        "schemathesis", reason="schemathesis is not installed; see make test-server-clients"
    )
    model = FakeServer([Answer(when="", reply=submits("done"))])
    limits = ("--max-steps", "2", "--timeout", "20", "--max-queued", "1000")
    with model, served(tmp_path, model, *limits, RLM_SERVE_TOKEN=TOKEN) as one:
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("schemathesis")), "--no-color"),
                *("--config-file", str(Path(__file__).with_name("schemathesis.toml")), "run"),
                *(f"{one.base}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}"),
                *("--checks", "all", "--seed", SEED, "--max-examples", str(EXAMPLES)),
                *("--generation-database", "none", "--request-timeout", "30"),
                *("--suppress-health-check", "all"),
            ],
            env=environment({}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=480,
            check=False,
        )
        said = done.stdout + done.stderr
        assert one.process.poll() is None, one.lines[-20:]
        assert done.returncode == 0, said[-6_000:]
        assert not [line for line in one.lines if re.search(r" 5\d\d \d", line)]
