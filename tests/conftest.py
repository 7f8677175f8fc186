"""What holds for every test: no network, no keys, no running model server, every skip reported."""

import gc
import os
import re
import signal
import tempfile
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests import network_guard
from tests.cli.local_servers import nowhere

SECRET_OR_SETTING = re.compile(
    r".*_API_KEY|.*_ACCESS_TOKEN|HF_TOKEN|GITHUB_TOKEN|(RLM|ELIZA_RLM|LLM|OPENAI|ANTHROPIC|GEMINI|GOOGLE"
    r"|AZURE_OPENAI|OPENROUTER|PORTKEY|VERCEL|AI_GATEWAY|GROQ|OLLAMA|VLLM|LMSTUDIO|LLAMACPP"
    r"|MODAL|PRIME|E2B|DAYTONA|AWS|OTEL)_.*"
)
"""Variables that could send a test to a real provider, or change it on one machine only."""

for variable in [name for name in os.environ if SECRET_OR_SETTING.fullmatch(name)]:
    del os.environ[variable]

os.environ.update(nowhere())

_state = tempfile.TemporaryDirectory(prefix="rlm-tests-")
os.environ["RLM_STATE_DIR"] = _state.name
"""Journals of commands that tests start: not where the person who runs the tests keeps theirs."""

os.environ["RLM_CONFIG_DIR"] = f"{_state.name}/config"
"""Their settings and keys, likewise."""

network_guard.install()

# A shell that starts the tests in the background makes them, and all they start, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=25,  # `make test-fuzz` tries 2,000.
    print_blob=True,
)
settings.register_profile(
    "long",
    deadline=None,
    max_examples=2_000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def no_network() -> Iterator[list[str]]:
    """Fails a test that tried to leave this machine, even if the code under test hid the error."""
    network_guard.attempts.clear()
    yield network_guard.attempts
    if network_guard.attempts:
        pytest.fail(f"tried to reach the network: {', '.join(network_guard.attempts)}")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, which need not look at them later either."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names every skipped test and why; `.ci/test-all` counts the lines that start with SKIP."""
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.write_line(f"{len(skipped)} skipped" + (":" if skipped else ""))
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP {report.nodeid}: {reason.removeprefix('Skipped: ')}")
