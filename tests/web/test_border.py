"""The prefix of a path is found however it is encoded, and a long path costs no more."""

from typing import Any
from urllib.parse import unquote

import pytest

from rlm.web import border
from rlm.web.border import sent_path


def scope(sent: str, root: str) -> dict[str, Any]:
    return {"path": unquote(sent), "raw_path": sent.encode("latin-1"), "root_path": root}


@pytest.mark.parametrize(
    ("sent", "root", "rest"),
    [
        ("/view/a%2Fb", "/view", "/a%2Fb"),
        ("/%76iew/a%2Fb", "/view", "/a%2Fb"),
        ("/%76%69%65%77", "/view", ""),
        ("/a%20%C3%A9/b%2Fc", "/a \u00e9", "/b%2Fc"),
        ("/%61%20%C3%A9/b%2Fc", "/a \u00e9", "/b%2Fc"),
        ("/view%2Fa/b", "/view", "/view%2Fa/b"),
        ("/a%2Fb", "", "/a%2Fb"),
    ],
)
def test_the_prefix_is_found_in_any_encoding(sent: str, root: str, rest: str) -> None:
    assert sent_path(scope(sent, root)) == rest


def test_a_long_path_is_not_decoded_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []

    def counted(text: str) -> str:
        decoded.append(len(text))
        return unquote(text)

    monkeypatch.setattr(border, "unquote", counted)
    sent = "/view%2F" + "/%41" * 20_000
    assert sent_path(scope(sent, "/view")) == sent
    assert sum(decoded) < 200
