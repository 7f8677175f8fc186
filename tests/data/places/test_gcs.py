"""`gs://`: there is no server to try it with, so the calls are checked against the real gcsfs."""

import importlib
import inspect

import pytest

from rlm.data.places import place
from rlm.data.places.objects import ObjectStore
from rlm.data.places.problems import is_transient, problem

gcsfs = importlib.import_module("gcsfs")


def test_gcsfs_accepts_our_calls() -> None:
    made = gcsfs.GCSFileSystem
    inspect.signature(made._info).bind(None, "bucket/x")
    inspect.signature(made._find).bind(None, "bucket/x", detail=True)
    inspect.signature(made._cat_file).bind(None, "bucket/x", start=0, end=4)
    assert all(map(inspect.iscoroutinefunction, (made._info, made._find, made._cat_file)))
    assert "read_only" in made.scopes
    assert "gs" in made.protocol


def test_a_store_opens_without_a_request() -> None:
    store = ObjectStore(place("gs://bucket/logs/*.log", options={"token": "anon"}))
    assert type(store._library).__name__ in ("GCSFileSystem", "ExtendedGcsFileSystem")
    assert store._library.credentials.access == "read_only"


def test_a_gcs_listing_becomes_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts are those that gcsfs makes of an answer of the JSON interface."""
    library = gcsfs.GCSFileSystem(token="anon", skip_instance_cache=True)
    facts = library._process_object(
        "bucket", {"name": "logs/a.log", "size": "12", "generation": "77", "etag": "CJk="}
    )
    store = ObjectStore(place("gs://bucket/logs/", options={"token": "anon"}))
    entry = store._entry(facts, "a.log")
    assert entry == ("bucket/logs/a.log", "a.log", 12, "CJk=")


@pytest.mark.parametrize(
    ("code", "told", "transient"),
    [
        (403, "no permission to read gs://b/x: ask for it, or run `gcloud auth", False),
        (404, "nothing found at gs://b/x; check the address", False),
        (503, "gs://b/x responded with status 503; try again later", True),
    ],
)
def test_gcs_errors_are_understood(code: int, told: str, transient: bool) -> None:
    error = importlib.import_module("gcsfs.retry").HttpError({"code": code, "message": "words"})
    assert told in str(problem(place("gs://b/x"), error))
    assert is_transient(error) is transient
