"""Which pairs of user and layers `make test` tries."""

from typing import Any

import pytest

LAYERS = ("any_host", "family", "setting")
"""Fixtures whose parameter says which layers are missing; the first of each leaves out none."""

ALL: tuple[object, ...] = ((), [], "all layers")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try strangers with all layers and root with the fewest; the other pairs are heavy.

    So most people run it, and so containers do, where layers are missing.
    """
    for item in items:
        given: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        if "user" in given:
            layers = next((given[name] for name in LAYERS if name in given), ())
            few = layers not in ALL or item.path.stem == "test_fallbacks"
            if given["user"] != ("root" if few else "stranger"):
                item.add_marker(pytest.mark.heavy)
