"""Files of web servers: versions, failures, secrets, and redirects to where nobody may go."""

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest

from rlm import ConfigError, FetchLimits
from rlm.context import store_context
from rlm.data.places import Fetched, fetch, place
from rlm.data.places.web import Reachable
from tests.data.places.web_server import Answer, Asked, WebServer, web_server


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


def text_of(fetched: Fetched) -> str:
    (path,) = fetched.paths
    return path.read_text()


def methods(server: WebServer) -> list[str]:
    return [asked.method for asked in server.asked]


def test_a_page_is_fetched_once_per_version(server: WebServer) -> None:
    server.pages(**{"notes.txt": b"one"})
    where = place(f"{server.url}/notes.txt")
    first = fetch(where)
    assert (first.names, text_of(first)) == (("notes.txt",), "one")
    assert text_of(fetch(where)) == "one"
    assert methods(server) == ["HEAD", "GET", "HEAD"]
    server.pages(**{"notes.txt": b"two"})
    assert text_of(fetch(where)) == "two"
    assert methods(server)[3:] == ["HEAD", "GET"]


def test_a_page_without_a_version_is_fetched_every_time(server: WebServer) -> None:
    server.answer = lambda asked: Answer(405 if asked.method == "HEAD" else 200, b"text")
    for _ in range(2):
        assert text_of(fetch(place(f"{server.url}/a%2Fb.txt"))) == "text"
    assert methods(server) == ["HEAD", "GET"] * 2
    assert fetch(place(f"{server.url}/a%2Fb.txt")).names == ("a%2Fb.txt",)


def test_the_content_type_determines_the_suffix(server: WebServer) -> None:
    server.answer = lambda _: Answer(200, b'{"a": 1}', {"Content-Type": "application/json; x=y"})
    assert fetch(place(f"{server.url}/export?id=7")).names == ("export.json",)
    assert fetch(place(server.url)).names == ("page.json",)
    assert store_context(place(f"{server.url}/export")).kind == "json"


@pytest.mark.parametrize(
    ("status", "told", "requests"),
    [
        (404, "nothing found at {shown}; check the address", 1),
        (403, "no permission to read {shown}: ask for it, or use a signed address", 1),
        (401, "no permission to read {shown}", 1),
        (503, "{shown} responded with status 503; try again later", 4),
        (418, "{shown} can't be read: 418", 1),
    ],
)
def test_an_error_status_is_one_line(
    server: WebServer, status: int, told: str, requests: int
) -> None:
    server.answer = lambda _: Answer(status)
    with pytest.raises(ConfigError) as raised:
        fetch(place(f"{server.url}/x.csv?sig=t0psecret"))
    assert told.format(shown=f"{server.url}/x.csv?…") in str(raised.value)
    assert "t0psecret" not in str(raised.value)
    assert methods(server).count("GET") == requests


def test_a_truncated_body_is_fetched_again(server: WebServer) -> None:
    cuts = [3, 2]

    def answer(asked: Asked) -> Answer:
        is_get = asked.method == "GET"
        return Answer(200, b"whole text", cut=cuts.pop() if is_get and cuts else 0)

    server.answer = answer
    assert text_of(fetch(place(f"{server.url}/x.txt"))) == "whole text"
    assert methods(server) == ["HEAD", "GET", "GET", "GET"]


def test_a_body_that_is_always_truncated_is_reported(server: WebServer) -> None:
    server.answer = lambda _: Answer(200, b"whole text", cut=4)
    with pytest.raises(ConfigError) as raised:
        fetch(place(f"{server.url}/x.txt"))
    assert str(raised.value) == (
        f"the connection to {server.url}/x.txt ended before all data had arrived; try again later"
    )
    assert methods(server) == ["HEAD", *["GET"] * 4]


def test_a_page_that_changes_meanwhile_is_fetched_again(server: WebServer) -> None:
    tags = iter(['"1"', '"2"', '"2"', '"2"'])
    server.answer = lambda _: Answer(200, b"text", {"ETag": next(tags)})
    assert text_of(fetch(place(f"{server.url}/x.txt"))) == "text"
    assert methods(server) == ["HEAD", "GET", "HEAD", "GET"]


def test_an_endless_body_is_cut_off(server: WebServer) -> None:
    server.answer = lambda asked: Answer(200, b"x" * (1 << 22), {})
    with pytest.raises(ConfigError, match=r"and at most 1\.0 MB are fetched"):
        fetch(place(f"{server.url}/x", limits=FetchLimits(bytes=1_000_000)))


def test_an_unreachable_server_is_reported_without_secrets() -> None:
    with pytest.raises(ConfigError) as raised:
        fetch(place("http://user:t0psecret@127.0.0.1:9/x?token=abcdefgh"))
    assert str(raised.value).startswith("http://127.0.0.1:9/x?… can't be reached (")
    assert str(raised.value).endswith("; check the network and the address")
    assert "secret" not in str(raised.value)


def test_a_password_is_sent_only_to_its_own_server(server: WebServer) -> None:
    with web_server() as other:
        other.pages(x=b"text")
        server.answer = lambda asked: (
            Answer(302, headers={"Location": "/again"})
            if asked.path == "/x"
            else Answer(302, headers={"Location": f"{other.url}/x"})
        )
        host = server.url.removeprefix("http://")
        assert text_of(fetch(place(f"http://us%40er:p%2Fw@{host}/x"))) == "text"
        wanted = "Basic " + base64.b64encode(b"us@er:p/w").decode()
        assert {asked.headers.get("Authorization") for asked in server.asked} == {wanted}
        assert [asked.headers.get("Authorization") for asked in other.asked] == [None, None]


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("http://10.0.0.1/x", "redirects to 10.0.0.1, an address of a private network"),
        ("http://[::1]/x", "redirects to ::1, an address of a private network"),
        ("http://[::ffff:127.0.0.1]/x", "redirects to 127.0.0.1, an address of a private"),
        ("http://[64:ff9b::a00:1]/x", "redirects to 10.0.0.1, an address of a private"),
        ("http://169.254.169.254/latest", "redirects to 169.254.169.254, an address of a priv"),
        ("file:///etc/passwd", "redirects to something less secure than https"),
        ("", "redirects more than 8 times"),
    ],
)
def test_a_redirect_into_a_private_network_is_not_followed(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, location: str, told: str
) -> None:
    """The server stands for the proxy of a network, so that the first address is a public one."""
    monkeypatch.setenv("http_proxy", server.url)
    server.answer = lambda _: Answer(302, headers={"Location": location})
    with pytest.raises(ConfigError) as raised:
        fetch(place("http://public.example/x"))
    assert told in str(raised.value)
    wanted = {"http://public.example/x"} if location else {asked.path for asked in server.asked}
    assert {asked.path for asked in server.asked} == wanted


def test_https_is_not_redirected_to_http() -> None:
    from yarl import URL

    from rlm.data.places.web import WebStore

    store = WebStore(place("https://public.example/x"))
    with pytest.raises(ConfigError, match="redirects to something less secure than https"):
        store._next(URL("https://public.example/x"), "http://public.example/y")


def resolved(named: str, host: str, addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Look up the named host at its first address, then another host; return how many came."""

    async def look_up() -> int:
        loop = asyncio.get_running_loop()
        answers = {named: addresses[:1], host: addresses[1:]}

        async def getaddrinfo(asked: str, *_: Any, **__: Any) -> list[Any]:
            return [(2, 1, 6, "", (each, 80)) for each in answers[asked]]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        reachable = Reachable(named)
        await reachable.resolve(named, 80)
        return len(await reachable.resolve(host, 80))

    return asyncio.run(look_up())


@pytest.mark.parametrize(
    ("first", "second", "allowed"),
    [
        ("93.184.215.14", "1.1.1.1", True),
        ("93.184.215.14", "192.168.1.7", False),
        ("93.184.215.14", "127.0.0.1", False),
        ("93.184.215.14", "100.64.0.1", False),
        ("93.184.215.14", "0.0.0.0", False),
        ("93.184.215.14", "fd00::1", False),
        ("93.184.215.14", "fe80::1", False),
        ("93.184.215.14", "224.0.0.1", False),
        ("10.1.1.1", "10.2.2.2", True),
        ("10.1.1.1", "1.1.1.1", True),
        ("10.1.1.1", "127.0.0.1", False),
        ("10.1.1.1", "169.254.169.254", False),
        ("127.0.0.1", "127.0.0.1", True),
    ],
)
def test_redirects_to_private_addresses_are_refused(
    first: str, second: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if allowed:
        assert resolved("named.example", "other.example", [first, second], monkeypatch) == 1
        return
    with pytest.raises(ConfigError, match="an address of a private network; not followed"):
        resolved("named.example", "other.example", [first, second], monkeypatch)


def test_a_name_that_leads_to_a_metadata_service_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match=r"named\.example leads to 169\.254\.169\.254, which is"):
        resolved("named.example", "x", ["169.254.169.254"], monkeypatch)


def test_a_name_that_changes_its_address_leads_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter(["93.184.215.14", "1.1.1.1", "127.0.0.1"])

    async def look_up() -> None:
        async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
            return [(2, 1, 6, "", (next(answers), 80))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        reachable = Reachable("named.example")
        for _ in range(2):
            await reachable.resolve("named.example", 80)
        with pytest.raises(ConfigError, match=r"leads to 127\.0\.0\.1"):
            await reachable.resolve("named.example", 80)

    asyncio.run(look_up())
