"""Where the model of `make test-local-model` is. Without it, or the library, these tests skip."""

import importlib.util
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rlm.clients.gguf import GGUFClient
from tests.shape.tree import ROOT

NAME = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


@pytest.fixture
def model_path() -> Path:
    """LOCAL_MODEL_FILE, else where the Makefile puts it."""
    path = Path(os.environ.get("LOCAL_MODEL_FILE") or ROOT / "build" / "models" / NAME)
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed; make test-local-model has it")
    if not path.is_file():
        pytest.skip("there is no model file; make test-local-model fetches it")
    return path


@pytest.fixture
async def client(model_path: Path) -> AsyncIterator[GGUFClient]:
    made = GGUFClient(model_path, window_tokens=4_096)
    yield made
    await made.close()
