"""Which names and origins a server accepts."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.web.hosts import HostPolicy, bracketed, is_loopback


@given(st.text(max_size=60) | st.from_regex(r"[a-z0-9.\-\[\]:]{1,30}(:3001)?", fullmatch=True))
def test_only_local_names_with_the_port_pass(header: str) -> None:
    ours = {f"{name}:3001" for name in ("localhost", "127.0.0.1", "[::1]")}
    policy = HostPolicy("127.0.0.1", 3001)
    assert policy.allows_host([header]) == (header.lower() in ours)
    assert not policy.allows_host([header, header])
    assert not policy.allows_host([])


@given(st.ip_addresses())
def test_a_wildcard_accepts_addresses_but_not_names(address: Any) -> None:
    policy = HostPolicy("0.0.0.0", 3001)
    strict = HostPolicy("0.0.0.0", 3001, accepts_addresses=False)
    shown = f"[{address}]" if isinstance(address, ipaddress.IPv6Address) else str(address)
    assert policy.allows_host([f"{shown}:3001"])
    assert not policy.allows_host([f"{shown}.nip.example:3001"])
    assert strict.allows_host([f"{shown}:3001"]) == (shown in {"127.0.0.1", "[::1]"})


@given(st.text(max_size=60))
def test_only_the_origin_of_the_same_address_passes(origin: str) -> None:
    policy = HostPolicy("127.0.0.1", 3001)
    host = "localhost:3001"
    assert policy.allows_origin([origin], [host]) == (origin == f"http://{host}")
    assert policy.allows_origin([f"http://{host}"], [host])
    assert not policy.allows_origin([f"http://{host}"], ["evil.example:3001"])
    assert not policy.allows_origin([], [host])
    assert not policy.allows_origin([f"http://{host}", origin], [host])


@pytest.mark.parametrize(
    ("header", "passes"),
    [
        ("files.example", True),
        ("FILES.example:8443", True),
        ("pinned.example:8443", True),
        ("pinned.example:1", False),
        ("pinned.example", False),
        ("files.example.evil.example", False),
        ("localhost:3001", True),
        ("localhost:1", False),
    ],
)
def test_further_host_names_can_be_allowed(header: str, passes: bool) -> None:
    policy = HostPolicy("::1", 3001, allowed_hosts=["files.example", "pinned.example:8443"])
    assert policy.allows_host([header]) == passes


def test_further_origins_can_be_allowed() -> None:
    policy = HostPolicy("127.0.0.1", 3001, allowed_origins=["https://ide.example"])
    assert policy.allows_origin(["https://ide.example"], ["localhost:3001"])
    assert not policy.allows_origin(["https://ide.example.evil"], ["localhost:3001"])


def test_without_a_port_any_port_of_this_machine_passes() -> None:
    policy = HostPolicy("127.0.0.1", None)
    assert policy.allows_host(["localhost"])
    assert policy.allows_host(["127.0.0.1:8000"])
    assert not policy.allows_host(["evil.example:8000"])


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.1.2.3", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.com", "")))


def test_addresses_in_urls_have_brackets() -> None:
    assert [bracketed(host) for host in ("::1", "[::1]", "a.example")] == [
        "[::1]",
        "[::1]",
        "a.example",
    ]
