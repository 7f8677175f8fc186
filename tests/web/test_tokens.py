"""Bearer headers, link tokens and the owners of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm.errors import ConfigError
from rlm.web.tokens import MAX_TOKEN_CHARS, LinkToken, bearer_token, digest_of, find_owner


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ([], None),
        (["Bearer abc"], "abc"),
        (["bearer  abc "], "abc"),
        (["Basic abc"], None),
        (["abc"], None),
        (["Bearer"], None),
        (["Bearer "], None),
        (["Bearer abc", "Bearer abc"], None),
        (["Bearer " + "x" * (MAX_TOKEN_CHARS + 1)], None),
    ],
)
def test_exactly_one_bearer_header_holds_a_token(headers: list[str], token: str | None) -> None:
    assert bearer_token(headers) == token


@given(st.text(max_size=300))
def test_only_the_link_token_matches(text: str) -> None:
    token = LinkToken()
    assert not token.matches(text)
    assert not token.matches(None)
    assert not token.matches(token.value[:-1])
    assert token.matches(token.value)
    assert token.value != LinkToken().value


@pytest.mark.parametrize("weak", ["short", "x" * 201, "with spaces and more", "<script>'\"-------"])
def test_a_weak_link_token_is_refused(weak: str) -> None:
    with pytest.raises(ConfigError, match="openssl"):
        LinkToken(weak)


@given(st.text(max_size=50))
def test_a_token_is_found_by_its_digest(text: str) -> None:
    owners = {digest_of("first-token"): 1, digest_of("second-token"): 2}
    known = {"first-token": 1, "second-token": 2}
    assert find_owner(text, owners) == known.get(text)
    assert find_owner("second-token", owners) == 2
    assert find_owner("anything", {}) is None
