"""Files reach a real worker, and no message holds a word of them."""

from pathlib import Path

import pytest

from rlm import RLM, ConfigError, ScriptedClient
from rlm.context import ContextValue, files
from tests.context.helpers import make_tree

ODD = "NUL \0, CRLF \r\n, \U0001f600, BOM \ufeff, ".encode() + b"\xe9\xff no UTF-8"


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


@pytest.mark.parametrize("kind", ["file", "folder", "list", "files"])
def test_every_kind_of_context_reaches_the_repl_exactly(tmp_path: Path, kind: str) -> None:
    text = "The secret is kept.\n" + "x" * 300_000
    make_tree(tmp_path, {"a.txt": text.encode() + ODD, "sub/b.txt": "two"})
    values: dict[str, ContextValue] = {
        "file": tmp_path / "a.txt",
        "folder": tmp_path,
        "list": [tmp_path / "a.txt", tmp_path / "sub"],
        "files": files("**/*.txt", root=tmp_path),
    }
    code = "text = context if isinstance(context, str) else context['a.txt']\n"
    code += "FINAL(ascii(text[-60:]) + type(context).__name__ + str(len(context)))"
    client = ScriptedClient([cell(code)])
    with RLM(client, preview_chars=0) as rlm:
        result = rlm.ask("What does it say?", values[kind])
    seen = (text.encode() + ODD).decode("utf-8", "surrogateescape")
    shape = f"str{len(seen)}" if kind == "file" else "dict2"
    assert result.answer == ascii(seen[-60:]) + shape
    sent = "".join(str(message.content) for message in client.requests[0].messages)
    assert "secret" not in sent
    assert ("sub/b.txt" in sent) == (kind != "file")


def test_an_unreadable_context_is_an_error_before_anything_is_sent(tmp_path: Path) -> None:
    client = ScriptedClient([cell("FINAL(1)")])
    with RLM(client) as rlm, pytest.raises(ConfigError, match="no such file or folder"):
        rlm.ask("What does it say?", tmp_path / "none.txt")
    assert client.requests == []
