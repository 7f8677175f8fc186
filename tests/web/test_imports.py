"""Only web commands load the web framework."""

import pytest

from tests.cli.test_commands import loaded_by as loaded_by_command
from tests.shape.test_public_names import loaded_by

WEB = {"starlette", "uvicorn"}
ASK = (
    "from rlm import RLM\n"
    "from rlm.testing import ScriptedClient\n"
    "reply = '```repl\\nFINAL(42)\\n```'\n"
    "assert RLM(ScriptedClient([reply])).ask('?', 'a context').answer == '42'"
)


@pytest.mark.parametrize("statement", ["import rlm", ASK], ids=["import", "RLM"])
def test_runs_do_not_load_the_web_packages(statement: str) -> None:
    assert loaded_by(statement).isdisjoint(WEB)


def test_the_ask_command_does_not_load_the_web_packages() -> None:
    loaded = loaded_by_command("ask", "?", "-m", "offline/extractive", "--strategy", "direct")
    assert "rlm.api" in loaded
    assert loaded.isdisjoint(WEB)


def test_the_viewer_loads_the_web_packages() -> None:
    assert loaded_by("import rlm.viewer.server") >= WEB
