"""Signatures against AWS's published examples, regions and credentials, and event streams."""

import json
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.clients._aws import AwsCredentials, Signer, credentials_in, region_in, signed_headers
from rlm.clients._eventstream import FrameReader
from rlm.errors import ConfigError
from rlm.testing.fake_server.dialects.converse import frame

EXAMPLE = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
AT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()
HOST = "https://example.amazonaws.com"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

SUITE: list[tuple[str, str, str, dict[str, str], bytes, str]] = [
    (
        *("get-vanilla", "GET", "/", {}, b""),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    (
        *("post-vanilla", "POST", "/", {}, b""),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    (
        *("get-vanilla-query-order-key-case", "GET", "/?Param2=value2&Param1=value1", {}, b""),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        *("post-x-www-form-urlencoded", "POST", "/", FORM, b"Param1=value1"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
]
"""Cases of AWS's test suite for Signature Version 4 (region us-east-1, service "service")."""


def signed(method: str, url: str, headers: dict[str, str], body: bytes, **facts: Any) -> str:
    given_facts: dict[str, Any] = {
        "credentials": EXAMPLE,
        "region": "us-east-1",
        "service": "service",
        "when": AT,
    }
    return signed_headers(method, url, headers, body, **{**given_facts, **facts})["Authorization"]


@pytest.mark.parametrize("case", SUITE, ids=lambda case: case[0])
def test_the_published_signing_examples_are_reproduced(
    case: tuple[str, str, str, dict[str, str], bytes, str],
) -> None:
    _, method, path, headers, body, signature = case
    names = "content-type;host;x-amz-date" if headers else "host;x-amz-date"
    assert signed(method, HOST + path, headers, body) == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )


def test_every_part_of_a_request_affects_its_signature() -> None:
    before = signed("POST", f"{HOST}/model/a%3A0/converse", {}, b"{}")
    assert signed("POST", f"{HOST}/model/a%3A0/converse", {}, b"{ }") != before
    assert signed("POST", f"{HOST}/model/a%3A1/converse", {}, b"{}") != before
    assert signed("POST", f"{HOST}/model/a%3A0/converse?x=1", {}, b"{}") != before
    assert signed("POST", f"{HOST}/model/a%3A0/converse", {}, b"{}", region="eu-west-1") != before
    other = AwsCredentials("AKIDEXAMPLE", EXAMPLE.secret_access_key, "a-token")
    added = signed_headers(
        *("POST", f"{HOST}/", {}, b""),
        credentials=other,
        region="us-east-1",
        service="bedrock",
        when=AT,
    )
    assert added["X-Amz-Security-Token"] == "a-token"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in added["Authorization"]


def test_every_request_is_signed_with_its_own_date(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Signer(EXAMPLE, "us-east-1")
    moments = iter([AT, AT + 600])
    monkeypatch.setattr(time, "time", lambda: next(moments))
    dates = [signer.sign(f"{HOST}/", b"")["X-Amz-Date"] for _ in range(2)]
    assert dates == ["20150830T123600Z", "20150830T124600Z"]


def test_secrets_are_not_shown() -> None:
    signer = Signer(AwsCredentials("AKIDEXAMPLE", "a-secret-key", "a-token"), "us-east-1")
    assert signer.secrets == ("a-secret-key", "a-token")
    assert "a-secret-key" not in repr(signer)
    assert "a-token" not in repr(signer)


def test_credentials_are_read_from_the_environment() -> None:
    both = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert credentials_in({}) is None
    assert credentials_in(both) == AwsCredentials("a", "b")
    assert credentials_in({**both, "AWS_SESSION_TOKEN": "c"}) == AwsCredentials("a", "b", "c")
    with pytest.raises(ConfigError, match="AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY"):
        credentials_in({"AWS_ACCESS_KEY_ID": "a"})
    with pytest.raises(ConfigError, match="set both"):
        credentials_in({"AWS_SECRET_ACCESS_KEY": "a"})


def test_the_region_is_read_from_the_environment() -> None:
    assert region_in({}) == "us-east-1"
    assert region_in({"AWS_DEFAULT_REGION": "eu-central-1"}) == "eu-central-1"
    assert region_in({"AWS_REGION": "us-gov-west-1", "AWS_DEFAULT_REGION": "x"}) == "us-gov-west-1"
    assert region_in({"AWS_REGION": "ap-southeast-2"}) == "ap-southeast-2"
    for wrong in ("evil.example.com/", "us-east-1.evil.com", "x", "us-east-1/..", "us_east_1"):
        with pytest.raises(ConfigError, match="AWS_REGION"):
            region_in({"AWS_REGION": wrong})


# -- event streams ---------------------------------------------------------------------------------

FRAMES = [frame("messageStart", b'{"role":"assistant"}'), frame("messageStop", b"{}")]


@given(st.lists(st.integers(0, sum(map(len, FRAMES)))))
def test_frames_are_read_however_they_are_split(places: list[int]) -> None:
    whole = b"".join(FRAMES)
    cuts = [0, *sorted(places), len(whole)]
    reader = FrameReader()
    found = [
        json.loads(event) for start, end in pairwise(cuts) for event in reader.add(whole[start:end])
    ]
    assert found == [{"messageStart": {"role": "assistant"}}, {"messageStop": {}}]


def test_exceptions_are_named() -> None:
    (event,) = FrameReader().add(frame("throttlingException", b'{"message":"slow"}'))
    assert json.loads(event) == {"throttlingException": {"message": "slow"}}


@given(st.binary(min_size=12, max_size=200))
def test_malformed_frames_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"checksum|size|headers"):
        list(FrameReader().add(data))


@pytest.mark.parametrize("at", range(len(FRAMES[0])))
def test_every_flipped_bit_is_noticed(at: int) -> None:
    changed = bytearray(FRAMES[0])
    changed[at] ^= 0x10
    with pytest.raises(ValueError, match=r"checksum|size|headers"):
        list(FrameReader().add(bytes(changed)))
