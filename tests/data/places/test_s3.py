"""`s3://` with the real s3fs against a server of moto."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ConfigError, FetchLimits, ScriptedClient
from rlm.data.places import Fetching, fetch, place
from rlm.data.places.objects import BLOCK_BYTES
from rlm.data.places.problems import problem
from tests.data.places.object_store import SETTINGS, object_store, put

BIG = bytes(range(256)) * (BLOCK_BYTES // 100)
HOSTILE = (
    "app/../../etc/passwd",
    "app//x",
    "app/A.LOG",
    "app/n\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe",
    "app/" + "y" * 1_000,
    "app/%2e%2e",
    "app/a.log/inner",
    "/absolute",
)


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    with object_store() as client:
        put(client, "logs", **{"app/a.log": "first", "app/2026/b.log": "second", "app/empty": ""})
        put(client, "logs", **{"app/folder/": "", "big.bin": BIG})
        client.create_bucket(Bucket="empty")
        client.create_bucket(Bucket="hostile")
        put(client, "hostile", **{name: f"held by {name}"[:60] for name in (*HOSTILE, "app/a.log")})
        yield client


def told(url: str, **given: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        fetch(place(url, **given))
    assert "\n" not in str(raised.value)
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        assert SETTINGS[name] not in str(raised.value)
    return str(raised.value)


def test_a_prefix_an_object_and_a_pattern_are_fetched(store: Any) -> None:
    everything = fetch(place("s3://logs/app/"))
    assert everything.names == ("2026/b.log", "a.log", "empty")
    assert [path.read_text() for path in everything.paths] == ["second", "first", ""]
    assert fetch(place("s3://logs/app")).folder == everything.folder
    assert fetch(place("s3://logs/app/a.log")).names == ("a.log",)
    assert fetch(place("s3://logs/**/*.log")).names == ("app/2026/b.log", "app/a.log")
    assert fetch(place("s3://logs/app/[ab].log")).names == ("a.log",)


def test_a_large_object_is_fetched_in_ranges(store: Any) -> None:
    told: list[int] = []
    found = fetch(place("s3://logs/big.bin"), lambda done: told.append(done.bytes))
    assert found.paths[0].read_bytes() == BIG
    assert told[-1] == len(BIG) > 2 * BLOCK_BYTES


def test_hostile_names_stay_inside_the_folder(store: Any, cache: Path) -> None:
    found = fetch(place("s3://hostile"))
    assert len(found.names) == len(HOSTILE) + 1
    for path in found.paths:
        assert path.resolve().is_relative_to(found.folder.resolve())
        assert path.read_text().startswith("held by ")
    assert "app/%2E%2E/%2E%2E/etc/passwd" in found.names
    written = {path.parts[len(cache.parts)] for path in cache.rglob("*")}
    assert written == {"contents", "folders", "versions"}


def test_only_changed_objects_are_fetched_again(store: Any) -> None:
    store.create_bucket(Bucket="changing")
    put(store, "changing", a="1", b="2")
    done: list[Fetching] = []
    fetch(place("s3://changing"), done.append)
    put(store, "changing", b="3", c="4")
    found = fetch(place("s3://changing"), done.append)
    assert [path.read_text() for path in found.paths] == ["1", "3", "4"]
    assert (done[-1].files, done[-1].reused_files) == (3, 1)


def test_errors_are_one_line(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told("s3://nowhere/x") == "no such bucket: 'nowhere'; check the name"
    assert told("s3://empty") == "nothing found at s3://empty; check the address and its prefix"
    assert told("s3://logs/missing/") == (
        "nothing found at s3://logs/missing/; check the address and its prefix"
    )
    assert told("s3://logs/app", limits=FetchLimits(files=2)).startswith(
        "s3://logs/app has more than 2 files; choose fewer"
    )
    assert "has at least 10.7 MB, and at most 1.0 MB are fetched" in told(
        "s3://logs/big.bin", limits=FetchLimits(bytes=1_000_000)
    )
    dead = {"client_kwargs": {"endpoint_url": "http://127.0.0.1:9"}}
    assert told("s3://logs/app", options=dead).startswith("s3://logs/app can't be reached (")


def test_public_objects_are_read_without_credentials(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is public is read without any."""
    store.create_bucket(Bucket="public")
    store.put_object(Bucket="public", Key="a.txt", Body="for all", ACL="public-read")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")
    assert fetch(place("s3://public/")).paths[0].read_text() == "for all"
    assert told("s3://logs/app/") == (
        "no credentials for s3://logs/app/: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY"
    )


def test_missing_permissions_are_reported(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto checks no permissions, so the answer of the real S3 is put in its place."""
    errors = importlib.import_module("botocore.exceptions")
    translate_boto_error = importlib.import_module("s3fs.errors").translate_boto_error
    refused = errors.ClientError(
        {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}}, "List"
    )
    where = place("s3://logs/x")
    assert str(problem(where, translate_boto_error(refused))) == (
        "no permission to read s3://logs/x: ask for it, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID "
        "and AWS_SECRET_ACCESS_KEY"
    )
    assert str(problem(where, errors.NoCredentialsError())) == (
        "no credentials for s3://logs/x: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY"
    )


def test_a_busy_store_is_retried(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    s3fs = importlib.import_module("s3fs")
    busy = importlib.import_module("botocore.exceptions").ClientError(
        {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "GetObject"
    )
    failures, calls = [busy, busy], []
    original = s3fs.S3FileSystem._call_s3

    async def call(self: Any, method: str, *given: Any, **named: Any) -> Any:
        calls.append(method)
        if method == "get_object" and failures:
            raise failures.pop()
        return await original(self, method, *given, **named)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call)
    assert fetch(place("s3://logs/app/a.log")).paths[0].read_text() == "first"
    assert calls.count("get_object") == 3


def test_an_object_that_changes_while_it_is_read_is_read_again(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3fs = importlib.import_module("s3fs")
    store.create_bucket(Bucket="moving")
    put(store, "moving", a="before")
    original, reads = s3fs.S3FileSystem._cat_file, []

    async def cat(self: Any, *given: Any, **named: Any) -> Any:
        reads.append(given)
        found = await original(self, *given, **named)
        put(store, "moving", a=f"after{len(reads)}")
        return found

    monkeypatch.setattr(s3fs.S3FileSystem, "_cat_file", cat)
    assert "1 object of s3://moving changed while being read, such as a;" in told("s3://moving")
    assert len(reads) == 3


def test_the_command_fetches_a_place_and_records_no_secret(store: Any, tmp_path: Path) -> None:
    """Progress is on standard error, and no secret is in what was recorded."""
    command = [sys.executable, "-m", "rlm", "ask", "Where is the second?", "-f", "s3://logs/app/"]
    (tmp_path / "home").mkdir()
    variables = {
        **os.environ,
        "HOME": str(tmp_path / "home"),
        "RLM_STATE_DIR": str(tmp_path / "state"),
    }
    ended = subprocess.run(
        [*command, "-m", "offline/extractive", "--log-dir", str(tmp_path / "logs")],
        capture_output=True, text=True, env=variables, cwd=tmp_path,
    )  # fmt: skip
    assert "Fetched 3 files (0.0 MB) from s3://logs/app/." in ended.stderr
    assert "2026/b.log" in ended.stdout
    assert ended.returncode == 4  # Passages, no answer.
    again = subprocess.run(
        [*command, "-m", "offline/extractive"],
        capture_output=True, text=True, env=variables, cwd=tmp_path,
    )  # fmt: skip
    assert "from s3://logs/app/, 3 of them unchanged." in again.stderr
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".jsonl" for path in kept)
    for path in kept:
        assert SETTINGS["AWS_SECRET_ACCESS_KEY"].encode() not in path.read_bytes()


def test_the_model_sees_names_but_no_address(store: Any, tmp_path: Path) -> None:
    client = ScriptedClient(["```repl\nFINAL(len(context))\n```"])
    where = place("s3://logs/app/", options={"key": "AKIA-GIVEN", "secret": "given-s3cret"})
    with RLM(client, journal=tmp_path / "runs") as engine:
        result = engine.ask("How many?", where)
    assert result.answer == "3"
    sent = str(client.requests)
    assert "a.log" in sent
    for path in (tmp_path / "runs").rglob("*"):
        assert path.is_dir() or b"given-s3cret" not in path.read_bytes()
    assert "given-s3cret" not in sent
