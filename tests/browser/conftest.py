"""Tests in a real browser. Only where playwright is installed: `make test-browser` sees to that."""

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.browser.story import Story

collect_ignore_glob = [] if importlib.util.find_spec("playwright") else ["test_*.py"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from tests.browser.driving import chromium

    with chromium() as made:
        yield made


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens pages; afterwards, checks that they had no errors and executed no text."""
    from tests.browser.driving import Visits

    visits = Visits(browser)
    try:
        yield visits
        assert visits.problems() == []
    finally:
        visits.close()


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> "Story":
    from tests.browser.story import tell

    return tell(tmp_path_factory.mktemp("story") / "state")


@pytest.fixture(scope="session")
def story_url(story: "Story") -> Iterator[str]:
    """A viewer of those runs, for tests that change nothing."""
    from tests.browser.viewers import viewing

    with viewing(story.state) as url:
        yield url
