"""The driver's side: the endpoint, contenders as processes, fresh interpreters for imports."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.engines import ENGINES

__all__ = ["endpoint", "grown", "import_seconds", "outcome", "version_of"]

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_IMPORT = """
import sys, time
began = time.process_time()
{statement}
print(time.process_time() - began)
libraries = {{"aiohttp", "anthropic", "httpx", "httpx2", "litellm", "openai", "requests"}}
print(*sorted(libraries & set(sys.modules)))
"""
_OF_DSPY = {
    "DSPY_CACHEDIR": str(_ROOT / "build" / "bench" / "dspy-cache"),
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
"""It keeps its cache in the home folder otherwise, and asks the network for prices."""

_LONGEST_IMPORT_SECONDS = 120
_LONGEST_GROWTH_SECONDS = 180.0


@contextmanager
def endpoint() -> Generator[int, None, None]:
    """Start the model server in its own process and yield its port."""
    command = [sys.executable, str(_HERE / "endpoint.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _variables(engine: str) -> dict[str, str]:
    """Return variables for a process: bytecode is written, other packages are not found."""
    left_out = {"PYTHONDONTWRITEBYTECODE"} | ({"PYTHONPATH"} if engine != "rlm" else set())
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, **_OF_DSPY} if engine == "dspy" else kept


def outcome(
    engine: str, python: str, scenario: str, options: Mapping[str, Any], timeout_seconds: float
) -> dict[str, Any]:
    """Return a contender's outcome of one scenario: `metrics`, why it `cannot`, or an `error`."""
    script = _HERE / ENGINES[engine].script
    return _reported(engine, [python, str(script)], scenario, options, timeout_seconds)


def grown(python: str, axis: str, size: int, rounds: int) -> dict[str, Any]:
    """Return the cost of rlm at a size of an axis."""
    options = {"axis": axis, "size": size, "rounds": rounds}
    command = [python, str(_HERE / "growth_rlm.py")]
    return _reported("rlm", command, "grown", options, _LONGEST_GROWTH_SECONDS)


def _reported(
    engine: str,
    command: list[str],
    scenario: str,
    options: Mapping[str, Any],
    timeout_seconds: float,
) -> dict[str, Any]:
    asked = json.dumps({"scenario": scenario, "options": options}) + "\n"
    try:
        done = subprocess.run(  # noqa: S603 - our own script
            command,
            input=asked,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            env=_variables(engine),
        )
    except subprocess.TimeoutExpired:
        return {"error": f"did not end within {timeout_seconds:g} s"}
    try:
        reported: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": f"ended with status {done.returncode}: {done.stderr[-300:].strip()}"}
    if "error" in reported:
        reported["stderr"] = done.stderr[-1_500:]
    return reported


def import_seconds(engine: str, python: str, rounds: int) -> dict[str, Any]:
    """Return processor seconds of an import in fresh interpreters, after an uncounted first one."""
    statements = {"package": ENGINES[engine].import_package, "class": ENGINES[engine].import_class}
    metrics: dict[str, Any] = {}
    for name, statement in statements.items():
        reported = [_imported(engine, python, statement) for _ in range(rounds + 1)][1:]
        metrics[name] = [float(seconds) for seconds, _ in reported]
        metrics[f"{name}_loads"] = reported[-1][1].split()
    return {"metrics": metrics}


def _imported(engine: str, python: str, statement: str) -> tuple[str, str]:
    code = _IMPORT.format(statement=statement)
    done = subprocess.run(  # noqa: S603
        [python, "-c", code],
        cwd=_ROOT / "benchmarks",
        env=_variables(engine),
        capture_output=True,
        text=True,
        timeout=_LONGEST_IMPORT_SECONDS,
        check=True,
    )
    seconds, _, loaded = done.stdout.partition("\n")
    return seconds, loaded.strip()


def version_of(engine: str, python: str) -> str:
    """Return the installed version of an engine."""
    ask = f"import importlib.metadata as m; print(m.version({ENGINES[engine].package!r}))"
    done = subprocess.run(  # noqa: S603
        [python, "-c", ask], env=_variables(engine), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
