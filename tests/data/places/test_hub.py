"""`hf://` with the real huggingface_hub against a stand-in for the Hub."""

from collections.abc import Iterator
from typing import Any

import pytest

from rlm import ConfigError, FetchLimits
from rlm.context import store_context
from rlm.data.places import Fetching, Place, fetch, place
from tests.data.places.hub_server import Hub, commit
from tests.data.places.web_server import WebServer, web_server

TOKEN = "hf_exampleexampleexample"


@pytest.fixture
def hub() -> Hub:
    made = Hub()
    made.datasets["owner/papers"] = {
        "main": {"README.md": b"# Papers", "data/a.txt": b"first", "data/b.txt": b"second"},
        "v1": {"README.md": b"# Old"},
        "refs/convert/parquet": {
            "en/train/0000.parquet": b"PAR1 train", "en/test/0000.parquet": b"PAR1 one",
            "en/test/0001.parquet": b"PAR1 two", "de/test/0000.parquet": b"PAR1 de",
        },
    }  # fmt: skip
    return made


@pytest.fixture
def server(hub: Hub) -> Iterator[WebServer]:
    with web_server() as made:
        made.answer = hub.answer
        yield made


def at(server: WebServer, url: str, **given: Any) -> Place:
    return place(url, options={"endpoint": server.url, "token": TOKEN}, **given)


def told(server: WebServer, url: str, **given: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        fetch(at(server, url, **given))
    assert "\n" not in str(raised.value)
    assert TOKEN not in str(raised.value)
    return str(raised.value)


def test_files_of_a_dataset_are_fetched(server: WebServer) -> None:
    found = fetch(at(server, "hf://datasets/owner/papers"))
    assert found.names == ("README.md", "data/a.txt", "data/b.txt")
    assert [path.read_text() for path in found.paths] == ["# Papers", "first", "second"]
    assert fetch(at(server, "hf://datasets/owner/papers/data")).names == ("a.txt", "b.txt")
    assert fetch(at(server, "hf://datasets/owner/papers/data/*.txt")).names == ("a.txt", "b.txt")
    one = fetch(at(server, "hf://datasets/owner/papers/data/b.txt"))
    assert (one.names, one.paths[0].read_text()) == (("b.txt",), "second")
    old = fetch(at(server, "hf://datasets/owner/papers@v1/README.md"))
    assert old.paths[0].read_text() == "# Old"


def test_all_files_are_fetched_from_one_commit(server: WebServer) -> None:
    fetch(at(server, "hf://datasets/owner/papers"))
    sha = commit("owner/papers", "main")
    read = [asked.path for asked in server.asked if "/resolve/" in asked.path]
    assert sorted(read) == [
        f"/datasets/owner/papers/resolve/{sha}/{name}"
        for name in ("README.md", "data/a.txt", "data/b.txt")
    ]
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {TOKEN}"}


def test_only_changed_files_are_fetched_again(server: WebServer, hub: Hub) -> None:
    done: list[Fetching] = []
    where = at(server, "hf://datasets/owner/papers/data")
    fetch(where, done.append)
    hub.datasets["owner/papers"]["main"]["data/a.txt"] = b"changed"
    assert [path.read_text() for path in fetch(where, done.append).paths] == ["changed", "second"]
    assert done[-1].reused_files in (0, 1)


def test_a_split_is_found_by_name(server: WebServer) -> None:
    found = fetch(at(server, "hf://datasets/owner/papers?split=test&config=en"))
    assert [path.read_bytes() for path in found.paths] == [b"PAR1 one", b"PAR1 two"]
    assert (found.place.is_table, found.table_name) == (True, "test")


def test_errors_are_one_line(server: WebServer, hub: Hub) -> None:
    hub.denied.add("owner/gated")
    assert told(server, "hf://datasets/owner/nothing") == (
        "no such dataset or repository: 'owner/nothing'; check the name; if it is private, set "
        "HF_TOKEN, or run `hf auth login`"
    )
    assert told(server, "hf://datasets/owner/papers/nothing") == (
        "nothing found at hf://datasets/owner/papers/nothing; check the address and its prefix"
    )
    assert told(server, "hf://datasets/owner/papers@v9") == (
        "nothing found at hf://datasets/owner/papers@v9; check the address"
    )
    assert told(server, "hf://datasets/owner/gated/x").startswith(
        "no permission to read hf://datasets/owner/gated/x: ask for it, or set HF_TOKEN"
    )
    assert told(server, "hf://datasets/owner/papers?split=test") == (
        "owner/papers has the configs de, en; choose one with &config="
    )
    assert told(server, "hf://datasets/owner/papers?split=dev&config=en") == (
        "owner/papers has the splits test, train; choose one with ?split="
    )
    assert told(server, "hf://datasets/owner/papers", limits=FetchLimits(files=2)).startswith(
        "hf://datasets/owner/papers has more than 2 files"
    )
    dead = Place("hf://datasets/owner/papers", {"endpoint": "http://127.0.0.1:9"})
    with pytest.raises(ConfigError, match="hf://datasets/owner/papers can't be reached"):
        fetch(dead)


def test_the_files_of_a_dataset_are_a_context(server: WebServer) -> None:
    stored = store_context(at(server, "hf://datasets/owner/papers"))
    assert stored.documents == ("README.md", "data/a.txt", "data/b.txt")
