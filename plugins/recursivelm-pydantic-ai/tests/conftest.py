"""No model request leaves this machine by accident, and every skip is named."""

from collections.abc import Iterator

import pytest
from pydantic_ai import models


@pytest.fixture(autouse=True)
def no_real_models() -> Iterator[None]:
    """Only TestModel and FunctionModel answer; a test with a fake server allows more."""
    with models.override_allow_model_requests(False):
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name every skipped test and why; `.ci/test-all` counts the lines that start with SKIP."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"SKIP {report.nodeid}: {reason.removeprefix('Skipped: ')}")
