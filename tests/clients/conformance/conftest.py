"""Every test here runs for each dialect that it names, plain and as a stream."""

import pytest

from tests.clients.conformance.bench import DIALECTS, WAYS


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WAYS)
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)
