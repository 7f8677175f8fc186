"""Run `vf-eval` for real against the fake model of the example, and read its traces."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from verifiers.v1 import WireEpisode

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "fake_model.py"
EVAL_OPTIONS = (
    *("-m", "policy", "-c", "4", "--no-push", "--no-rich"),
    *("--client.base-url", "$FAKE_BASE_URL", "--client.api-key-var", "FAKE_API_KEY"),
)
SECONDS = 300


def vf_eval(folder: Path, *options: str, example: Path = EXAMPLE) -> tuple[str, list[Any]]:
    """Return what `vf-eval` prints, and the lines of its traces."""
    program = str(Path(sys.executable).parent / "vf-eval")
    command = (program, "recursivelm_verifiers", *EVAL_OPTIONS, "-o", "out", *options)
    done = subprocess.run(
        (sys.executable, str(example), *command),
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [traces] = (folder / "out").glob("*/traces.jsonl")
    lines = traces.read_text("utf-8").splitlines()
    return done.stdout + done.stderr, [WireEpisode.model_validate_json(each) for each in lines]
