"""dspy's settings are the same before every test, and every skip is named."""

import os
from collections.abc import Iterator

import dspy
import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
"""dspy reads it when it looks for prices: nothing is fetched."""


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    """No model is configured, no reply comes from a cache, and no interpreter needs Deno."""
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    with dspy.context(lm=None, interpreter_factory=None, callbacks=[], track_usage=False):
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every skipped test and why; `.ci/test-all` counts the lines that start with SKIP."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP {report.nodeid}: {reason.removeprefix('Skipped: ')}")
