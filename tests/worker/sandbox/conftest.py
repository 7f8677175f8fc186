"""Which pairs of user and layers `make test` tries."""

from typing import Any

import pytest

LAYERS = ("any_host", "family", "setting")
"""Fixtures whose parameter says which layers are missing; the first of each leaves out none."""

ALL: tuple[object, ...] = ((), [], "all layers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try strangers with all layers and root with the fewest; the other pairs are heavy.

    So most people run it, and so containers do.
    """
    for item in items:
        given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        for name in LAYERS:
            if name in given and "user" in given:
                usual = "stranger" if given[name] in ALL else "root"
                if given["user"] != usual:
                    item.add_marker(pytest.mark.heavy)
