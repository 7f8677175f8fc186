"""Tests in a real Jupyter kernel. Only where ipykernel is installed: `make test-notebook`."""

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.notebook.kernels import Kernel

collect_ignore_glob = [] if importlib.util.find_spec("ipykernel") else ["test_*.py"]


@pytest.fixture(scope="session")
def running_kernel() -> Iterator["Kernel"]:
    from tests.notebook.kernels import kernel

    with kernel() as made:
        yield made


@pytest.fixture
def cells(running_kernel: "Kernel") -> "Kernel":
    """A kernel in which the names of other tests are gone."""
    running_kernel.run("%reset -f")
    return running_kernel
