"""Fetch one file from a web server, and nothing from a network that the user did not name.

The address comes from a user, but its redirects come from a server: they may lead only to public
addresses, unless the user's own address is private.
"""

import asyncio
import base64
import ipaddress
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from rlm.data.places.addresses import Place
from rlm.data.places.stores import Changed, Entry
from rlm.errors import ConfigError

__all__ = ["Reachable", "WebStore"]

MAX_REDIRECTS = 8
BLOCK_BYTES = 1 << 20
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
_HEADERS = {"User-Agent": "rlm", "Accept-Encoding": "identity"}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebStore:
    """The file at an address. Implements `rlm.data.places.stores.Store`."""

    resumes = False

    def __init__(self, place: Place) -> None:
        self._url = URL(place.url.partition("#")[0], encoded=True)
        self._reachable = Reachable(self._url.host or "")
        self._auth: str | None = None
        if self._url.user is not None:
            pair = f"{self._url.user}:{self._url.password or ''}".encode()
            self._auth = f"Basic {base64.b64encode(pair).decode()}"
            self._url = self._url.with_user(None)
        self._opened: aiohttp.ClientSession | None = None

    async def find(self) -> list[Entry]:
        """Return the file, with the size and version that the server announces."""
        async with self._answer("HEAD") as answer:
            # HEAD may fail, for example at signed addresses, which allow only GET.
            facts = answer.headers if answer.status == 200 else {}
        length, tag = facts.get("Content-Length", ""), facts.get("ETag", "")
        return [
            Entry(
                str(self._url),
                self._name(facts.get("Content-Type", "")),
                int(length) if length.isdecimal() and tag else None,
                tag if tag.startswith('"') else None,
            )
        ]

    async def find_again(self) -> list[Entry] | None:
        return None

    async def blocks(self, entry: Entry, start: int) -> AsyncIterator[bytes]:
        """Yield the bytes of one response, which must have the announced version."""
        async with self._answer("GET") as answer:
            if answer.status != 200:
                raise aiohttp.ClientResponseError(
                    answer.request_info, (), status=answer.status, message="unexpected status"
                )
            if entry.version is not None and answer.headers.get("ETag") != entry.version:
                raise Changed(entry.name)
            async for block in answer.content.iter_chunked(BLOCK_BYTES):
                yield block

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    @asynccontextmanager
    async def _answer(self, method: str) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """Send a request and follow permitted redirects."""
        url = self._url
        for _ in range(MAX_REDIRECTS):
            self._reachable.check_literal(url.host or "")
            proxy = _proxy(url)
            self._reachable.proxy = URL(proxy).host if proxy else None
            headers = dict(_HEADERS)
            if self._auth is not None and url.origin() == self._url.origin():
                headers["Authorization"] = self._auth
            async with self._session().request(
                method, url, headers=headers, allow_redirects=False, proxy=proxy
            ) as answer:
                if answer.status not in _REDIRECTS:
                    yield answer
                    return
                url = self._next(url, answer.headers.get("Location", ""))
        raise ConfigError(f"the address redirects more than {MAX_REDIRECTS} times")

    def _next(self, url: URL, location: str) -> URL:
        try:
            found = url.join(URL(location, encoded=True))
        except ValueError:
            raise ConfigError("the server redirects to something that is not an address") from None
        if found.scheme not in ("https", "http") or (
            found.scheme == "http" and self._url.scheme == "https"
        ):
            raise ConfigError(
                "the server redirects to something less secure than https; not followed"
            )
        return found.with_user(None).with_fragment(None)

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=self._reachable, use_dns_cache=False),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=_TIMEOUT,
            )
        return self._opened

    def _name(self, content_type: str) -> str:
        name = unquote(self._url.raw_path.rpartition("/")[2]) or "page"
        if "." not in name:
            name += mimetypes.guess_extension(content_type.partition(";")[0].strip()) or ""
        return name.replace("/", "%2F")


class Reachable(AbstractResolver):
    """A resolver that refuses addresses to which a redirect may not lead.

    aiohttp connects to the addresses that this returns, so a name can't resolve to one address and
    then be reached at another.
    """

    def __init__(self, named: str) -> None:
        self._named = named
        self._literal = _address(named)
        self._privately: set[_Address] = set() if self._literal is None else {self._literal}
        """The addresses of the host that the user named, from its first lookup."""
        self._is_looked_up = False
        self.proxy: str | None = None

    def check_literal(self, host: str) -> None:
        """Refuse a host given as an IP address, which is never looked up."""
        if (found := _address(host)) is not None:
            self._check(host, found)

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Return the addresses of a host, all of which must be allowed."""
        loop = asyncio.get_running_loop()
        listed = await loop.getaddrinfo(host, port, family=family, type=1)
        found: list[ResolveResult] = []
        if host == self._named and not self._is_looked_up:
            # Only once: a server could change its DNS record and then redirect to itself.
            self._is_looked_up = True
            self._privately.update(_plain(each[4][0]) for each in listed)
        for kind, _, protocol, _, (text, *_) in listed:
            if host != self.proxy:
                self._check(host, _plain(text))
            found.append(
                {
                    "hostname": host,
                    "host": str(text),
                    "port": port,
                    "family": kind,
                    "proto": protocol,
                    "flags": 0,
                }
            )
        return found

    async def close(self) -> None: ...

    def _check(self, host: str, address: _Address) -> None:
        address = _inner(address)
        if address.is_global and not address.is_multicast:
            return
        named = [_inner(each) for each in self._privately]
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            allowed = self._literal is not None and address == _inner(self._literal)
        elif address.is_loopback:
            allowed = any(each.is_loopback for each in named)
        else:
            allowed = any(not each.is_global for each in named)
        if not allowed:
            raise ConfigError(
                f"the server redirects to {address}, an address of a private network; not followed "
                "(to fetch it, pass that address yourself)"
                if host != self._named
                else f"{host} leads to {address}, which is not an address of a server"
            )


def _plain(text: str | int) -> _Address:
    return ipaddress.ip_address(str(text).partition("%")[0])


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _inner(address: _Address) -> _Address:
    """Return the IPv4 address inside an IPv6 address, if it has one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _proxy(url: URL) -> str | None:
    """Return the proxy from the environment for an address, never for this machine."""
    host = url.host or ""
    found = _address(host)
    if host == "localhost" or (found is not None and found.is_loopback) or proxy_bypass(host):
        return None
    return getproxies().get(url.scheme)
