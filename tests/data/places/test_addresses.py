"""Addresses: what is accepted, what is suggested, and what is shown of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlm
from rlm import ConfigError
from rlm.data.places import Place, is_address, place
from rlm.data.places.problems import is_transient, problem

SIGNED = "https://u%40x:pa%2Fss@store.example.org:8443/a/b.csv?X-Sig=deadbeef&token=t0psecret#x"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("bucket/logs", "an address must begin with a scheme, such as s3:// or https://"),
        ("s3a://bucket/logs", "unknown scheme s3a://; write s3://bucket/logs"),
        ("gcs://b/x", "unknown scheme gcs://; write gs://b/x"),
        ("abfss://b/x", "unknown scheme abfss://; write az://b/x"),
        ("htps://u:pw@h/x?k=v", "unknown scheme htps://; write https://h/x"),
        (
            "ftp://u:pw@h/x",
            "ftp:// can't be read; s3://, gs://, az://, https://, http://, hf:// can",
        ),
        ("file:///etc/passwd", "for a file on this machine, pass its path, without file://"),
        ("s3://", "write s3://bucket/prefix: the first part is missing"),
        ("s3://*/x", "write s3://bucket/prefix: the first part is missing"),
        ("s3://key:secret@bucket/x", "leave credentials out of s3:// addresses"),
        ("hf://datasets", "write hf://datasets/owner/name"),
        ("hf://datasets/a/b?split=x&from=y", "a dataset accepts ?split= and &config=, not 'from'"),
        ("https:///x", "the address names no host"),
        ("https://h:port/x", "the address names no host"),
        ("s3://bucket/a\nb", "all of them printable"),
        ("s3://bucket/" + "x" * 9_000, "at most 8,192 characters"),
    ],
)
def test_an_invalid_address_says_what_to_write(url: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        place(url)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "pw" not in str(raised.value)


def test_a_signed_address_is_shown_without_its_secrets() -> None:
    found = place(SIGNED)
    assert found.shown == "https://store.example.org:8443/a/b.csv?…"
    assert repr(found) == "place('https://store.example.org:8443/a/b.csv?…')"
    assert str([found]) == "[place('https://store.example.org:8443/a/b.csv?…')]"
    hidden = rlm.place("s3://b/x", options={"key": "AKIAEXAMPLE", "secret": "s3cr3t-value"})
    assert repr(hidden) == "place('s3://b/x')"
    assert hidden.secrets == ["s3cr3t-value", "AKIAEXAMPLE"]


@pytest.mark.parametrize(
    "text",
    [
        f"failed: {SIGNED}",
        "bad token t0psecret of u%40x:pa%2Fss",
        "password pa/ss refused for https://user:other@host/x?sig=123",
        "X-Sig=deadbeef",
    ],
)
def test_no_error_of_a_library_reveals_a_secret(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "environment-secret")
    told = str(problem(place(SIGNED), ValueError(f"{text} environment-secret")))
    for secret in ("deadbeef", "t0psecret", "pa%2Fss", "pa/ss", "other", "123", "environment-se"):
        assert secret not in told


@given(st.text())
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    for url in (text, f"s3://{text}", f"https://{text}", f"hf://datasets/{text}"):
        try:
            found = place(url)
        except ConfigError:
            continue
        assert is_address(url)
        assert found.shown.isprintable()
        assert isinstance(found.is_table, bool)
        assert found.table_name
        assert isinstance(found.secrets, list)


@given(st.text(st.characters(categories=["L", "N"], max_codepoint=127), min_size=8))
def test_query_values_of_an_address_are_never_shown(secret: str) -> None:
    found = place(f"https://host/x?a={secret}")
    assert f"={secret}" not in found.shown
    assert f"={secret}" not in str(problem(found, OSError(f"GET {found.url} failed, a={secret}")))


def test_patterns_and_splits() -> None:
    assert place("s3://b/logs/2026-*/**/*.log").wildcards == ("b/logs", ("2026-*", "**", "*.log"))
    assert place("https://h/a*b?x=[1]").wildcards[1] == ()
    found = place("hf://datasets/owner/name?split=test&config=en")
    assert (found.dataset, found.table_name) == ({"split": "test", "config": "en"}, "test")
    assert place("s3://b/x/orders.parquet").table_name == "orders"
    assert place("s3://b/x/orders/*.parquet").table_name == "orders"
    assert (place("s3://b/x/*.parquet").is_table, place("s3://b/x/").is_table) == (True, False)


class _Refused(Exception):
    def __init__(self) -> None:
        self.status = 403


class _Busy(Exception):
    def __init__(self) -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": 503}}


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "told", "transient"),
    [
        (FileNotFoundError("x"), "nothing found at s3://b/x; check the address", False),
        (_Refused(), "no permission to read s3://b/x: ask for it, or set AWS_PROFILE", False),
        (_caused(OSError("busy"), _Busy()), "s3://b/x responded with status 503; try again", True),
        (ConnectionResetError("reset"), "s3://b/x can't be reached (reset); check the", True),
        (TimeoutError(), "s3://b/x can't be reached (TimeoutError)", True),
        (type("NoCredentialsError", (Exception,), {})(), "no credentials for s3", False),
        (type("NoSuchBucket", (OSError,), {})(), "no such bucket: 'b'; check the name", False),
        (ValueError("odd\nwords"), "s3://b/x can't be read: odd words", False),
    ],
)
def test_every_store_error_becomes_one_helpful_line(
    error: Exception, told: str, transient: bool
) -> None:
    assert told in str(problem(Place("s3://b/x"), error))
    assert is_transient(error) is transient
