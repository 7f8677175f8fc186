"""One clone for all tests of a session that need one: nothing in it depends on their order."""

import pytest

from tests.seeds.cloning import Clone, make_clone


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return make_clone(tmp_path_factory.mktemp("seeds"))
