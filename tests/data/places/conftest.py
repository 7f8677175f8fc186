"""Places that are servers of this machine; what needs a store's library is left out without it."""

import importlib.util
from pathlib import Path

import pytest

NEEDS = {
    "test_azure.py": "adlfs",
    "test_gcs.py": "gcsfs",
    "test_guide.py": "s3fs",
    "test_hub.py": "huggingface_hub",
    "test_place_corpora.py": "s3fs",
    "test_place_tables.py": "s3fs",
    "test_s3.py": "s3fs",
}
collect_ignore = [
    test for test, library in NEEDS.items() if importlib.util.find_spec(library) is None
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache, also used by commands that the test starts."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "rlm" / "places"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm.data.places.fetching.FIRST_WAIT_SECONDS", 0.0)
