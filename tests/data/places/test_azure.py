"""`az://` with the real adlfs against Azurite."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from rlm import ConfigError
from rlm.data.places import Fetching, fetch, place
from tests.data.places import azurite

pytestmark = pytest.mark.skipif(bool(azurite.missing()), reason=azurite.missing() or "-")


@pytest.fixture(scope="module")
def connection() -> Iterator[str]:
    with azurite.azurite() as found:
        yield found


@pytest.fixture
def account(connection: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Azure's own client, and a program that finds its credentials in the environment."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
    client = importlib.import_module("azure.storage.blob").BlobServiceClient
    with client.from_connection_string(connection) as service:
        for name in ("logs", "empty"):
            if not service.get_container_client(name).exists():
                service.create_container(name)
        put(service, **{"app/a.log": "first", "app/A.LOG": "other", "app/2026/b.log": "second"})
        yield service


def put(service: Any, **blobs: str) -> None:
    for name, text in blobs.items():
        service.get_blob_client("logs", name).upload_blob(text.encode(), overwrite=True)


def told(url: str) -> str:
    with pytest.raises(ConfigError) as raised:
        fetch(place(url))
    assert "\n" not in str(raised.value)
    assert azurite.KEY not in str(raised.value)
    return str(raised.value)


def test_a_prefix_a_blob_and_a_pattern_are_fetched(account: Any) -> None:
    found = fetch(place("az://logs/app/"))
    names = ("2026/b.log", "A.LOG", next(name for name in found.names if name.startswith("a~")))
    assert (found.names, names[2].endswith(".log")) == (names, True)
    assert [path.read_text() for path in found.paths] == ["second", "other", "first"]
    assert fetch(place("az://logs/app/a.log")).names == ("a.log",)
    assert fetch(place("az://logs/**/b*")).names == ("app/2026/b.log",)


def test_only_changed_blobs_are_fetched_again(account: Any) -> None:
    done: list[Fetching] = []
    put(account, **{"changing/a": "1", "changing/b": "2"})
    fetch(place("az://logs/changing/"), done.append)
    put(account, **{"changing/b": "3"})
    found = fetch(place("az://logs/changing/"), done.append)
    assert [path.read_text() for path in found.paths] == ["1", "3"]
    assert (done[-1].files, done[-1].reused_files) == (2, 1)


def test_errors_are_one_line(
    account: Any, connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and"
    assert told("az://nowhere/x") == "no such container: 'nowhere'; check the name"
    assert told("az://empty") == "nothing found at az://empty; check the address and its prefix"
    assert told("az://logs/missing") == (
        "nothing found at az://logs/missing; check the address and its prefix"
    )
    name = "AZURE_STORAGE_CONNECTION_STRING"
    monkeypatch.setenv(name, connection.replace("AccountKey=E", "AccountKey=F"))
    assert told("az://logs/app/").startswith(
        f"no permission to read az://logs/app/: ask for it, or {how}"
    )
    monkeypatch.setenv(name, connection.replace("127.0.0.1:", "127.0.0.1:9/"))
    assert told("az://logs/app/").startswith("az://logs/app/ can't be re")
    monkeypatch.delenv(name)
    assert told("az://logs/app/").startswith(f"no credentials for az://logs/app/: {how}")
