"""Who may ask the server what: names, origins, tokens, paths and limits."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.viewer import live
from rlm.viewer.access import HEADERS
from rlm.viewer.live import Position
from rlm.web.responses import without_paths
from tests.records.trajectories.samples import one_run, written
from tests.viewer.serving import PAGE, log_shelf, serving


def log(folder: Path) -> Any:
    return log_shelf(written(folder / "a.jsonl", one_run("r")))


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost",
        "localhost:1",
        "127.0.0.1.evil.example:{port}",
        "localhost.:{port}",
        "[::2]:{port}",
        "10.0.0.1:{port}",
        "a@localhost:{port}",
        "",
        "localhost:{port}:1",
    ],
)
async def test_a_foreign_host_name_is_refused(tmp_path: Path, host: str) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        named = host.format(port=client.server.port)
        for path in ("/", "/api/runs", "/api/live", "/assets/page-1a2b.js"):
            answer = await client.ask(path, headers={"Host": named})
            assert answer.status == 403
            assert PAGE not in answer.text


@pytest.mark.parametrize(
    "host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST:{port}"]
)
async def test_our_own_host_names_are_accepted(tmp_path: Path, host: str) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        named = host.format(port=client.server.port)
        assert (await client.ask("/api/runs", headers={"Host": named})).status == 200


# -- what changes something -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"X-RLM-Token": "wrong"},
        {"X-RLM-Token": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example:{port}", "Origin": "http://evil.example:{port}"},
    ],
)
async def test_requests_of_other_websites_cannot_fork(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        port = client.server.port
        said = {name: value.format(port=port) for name, value in headers.items()}
        answer = await client.fork({"run_id": "r", "step": 1}, **said)
        assert answer.status == 403
        own = await client.fork({"run_id": "r", "step": 1})
        assert own.status == 400  # It gets as far as the error that a log can't be forked.
        assert "journaled" in own.json["error"]


async def test_requests_of_other_websites_are_refused(tmp_path: Path) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
            answer = await client.ask("/api/runs", headers={"Sec-Fetch-Site": site})
            assert answer.status == status
            assert not [
                name for name in answer.headers if name.lower().startswith("access-control")
            ]
        preflight = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
        answer = await client.ask("/api/fork", "OPTIONS", headers=preflight)
        assert answer.status == 403
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"run_id": 1}', b'{"run_id":"r","step":"1"}', b"[" * 9_000]
)
async def test_an_invalid_fork_request_is_refused(tmp_path: Path, body: bytes) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        headers = {"Origin": client.base, "X-RLM-Token": client.server.access.token.value}
        answer = await client.ask("/api/fork", "POST", data=body, headers=headers)
        assert answer.status == 400


# -- headers, tokens and paths --------------------------------------------------------------------


async def test_every_response_has_the_security_headers(tmp_path: Path) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        for path in (
            "/",
            "/assets/page-1a2b.js",
            "/api/runs",
            "/api/nothing",
            "/nothing",
            "/api/runs/x",
        ):
            headers = (await client.ask(path)).headers
            assert {name: headers.get(name) for name in HEADERS} == dict(HEADERS)
            lasting = path.startswith("/assets/")
            assert ("immutable" in headers["Cache-Control"]) == lasting
            assert lasting or headers["Cache-Control"] == "no-store"
        async with client.session.get(f"{client.base}/api/live") as response:
            assert {name: response.headers.get(name) for name in HEADERS} == dict(HEADERS)


async def test_the_page_contains_its_token(tmp_path: Path) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        answer = await client.ask("/")
        assert (
            f'<meta name="rlm-token" content="{client.server.access.token.value}">' in answer.text
        )


PATHS = ["/static/index.html", "/../secret.txt", "/assets/../../secret.txt", "/assets/link.js"]
PATHS += ["/assets/%2e%2e/%2e%2e/secret.txt", "/assets/..%2f..%2fsecret.txt", "//etc/passwd"]
PATHS += [
    "/assets/",
    "/assets",
    "/source.sha256",
    "/index.html/",
    "/%00",
    "/assets/page-1a2b.js%00",
]


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_leads_outside_the_assets(tmp_path: Path, path: str) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        answer = await client.ask(path)
        assert answer.status == 404
        assert "secret" not in answer.text


texts = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, texts, st.integers(-5, 10**20)), min_size=1, max_size=10))
def test_any_ids_paths_and_numbers_get_an_answer(
    tmp_path: Path, wanted: list[tuple[str, str, int]]
) -> None:
    """Whatever an address contains, the answer is JSON or a file of the page, never a failure."""
    from urllib.parse import quote

    async def ask() -> None:
        async with serving(log(tmp_path), tmp_path) as client:
            for one, two, number in wanted:
                run, more = quote(one, safe=""), quote(two, safe="")
                for path in (
                    f"/{run}",
                    f"/assets/{run}",
                    f"/api/runs/{run}",
                    f"/api/runs/r/steps/{number}?offset={number}&limit={more}",
                    f"/api/runs/r/events/{number}/text/{run}",
                    f"/api/runs/r/context?start={number}&end={more}",
                    f"/api/runs/r/search?q={run}&limit={number}",
                    f"/api/runs/{run}/coverage",
                    f"/api/runs/{run}/live?after={more}" if one != "r" else "/api/viewer",
                ):
                    answer = await client.ask(path)
                    assert answer.status in {200, 400, 404}, (path, answer)
                    assert str(tmp_path) not in answer.text
                    assert answer.status == 200 or list(json.loads(answer.text)) == ["error"]

    asyncio.run(ask())


async def test_errors_name_no_local_folder(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", one_run("r"))
    async with serving(log_shelf(path), tmp_path) as client:
        await client.get("/api/runs")
        path.unlink()
        for place in ("/api/runs/r", "/api/runs/r/steps/1", "/api/runs", "/api/runs/r/calls"):
            answer = await client.ask(place)
            assert str(tmp_path) not in answer.text


@given(
    st.lists(
        st.from_regex(r"[a-z0-9_.-]{1,12}( [a-z]{1,3})?", fullmatch=True), min_size=1, max_size=5
    )
)
def test_folders_are_removed_from_messages(parts: list[str]) -> None:
    path = "/" + "/".join(parts) + "/file.sqlite"
    told = without_paths(f"the journal {path} can't be read: 'x'; see https://example.com/a/b")
    assert told == "the journal file.sqlite can't be read: 'x'; see https://example.com/a/b"


def test_words_between_two_paths_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/it's; ours, too")
    assert without_paths("moved /a/b c to /d e/f.txt") == "moved b c to f.txt"
    told = without_paths("the journal /srv/it's; ours, too/.local/a b/x.sqlite is damaged")
    assert told == "the journal x.sqlite is damaged"


async def test_the_number_of_live_streams_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_STREAMS", 2)
    async with (
        serving(log(tmp_path), tmp_path) as client,
        client.stream("/api/live"),
        client.stream("/api/live"),
    ):
        answer = await client.ask("/api/live")
        assert answer.status == 503
        assert "too many pages" in answer.json["error"]


async def test_a_taken_port_is_reported_with_a_remedy(tmp_path: Path) -> None:
    async with serving(log(tmp_path), tmp_path) as client:
        from rlm.viewer.contexts import Contexts
        from rlm.viewer.library import Library
        from rlm.viewer.server import ViewerServer

        second = ViewerServer(
            Library(log(tmp_path)),
            Contexts(None),
            port=client.server.port,
            static=tmp_path / "static",
        )
        with pytest.raises(ConfigError, match="--port"):
            await second.__aenter__()


@given(st.text(max_size=30))
def test_any_stream_position_is_read_back_or_refused(text: str) -> None:
    found = Position.of(text)
    assert found is None or text == "-" or Position.of(str(found)) == found
    assert Position.of("12.3") == Position(12, 3)
