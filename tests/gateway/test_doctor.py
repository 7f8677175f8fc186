"""`rlm mcp doctor`: it really connects, and says what to do when that fails."""

import json
import socket
import sys
from pathlib import Path

import pytest

from tests.cli.running import rlm
from tests.gateway.serving import make_tree, over_http

TOKEN = "anne-0123456789abcdef"


@pytest.mark.heavy
def test_the_doctor_reads_a_line_through_a_gateway_of_its_own(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    cursor = tmp_path / ".cursor"
    cursor.mkdir()
    entry = {"command": sys.executable, "args": ["-m", "rlm", "mcp", "--root", "."]}
    gone = {"command": str(tmp_path / "rlm"), "args": ["mcp"]}
    servers = {"mcpServers": {"rlm": entry, "old": gone, "other": {"url": "https://x/mcp"}}}
    (cursor / "mcp.json").write_text(json.dumps(servers), "utf-8")
    state = str(tmp_path / "state")
    done = rlm("mcp", "doctor", "--root", str(root), HOME=str(tmp_path), RLM_STATE_DIR=state)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("package", "root", "record", "Cursor", "Cursor", "connection", "session", "result")
    ]
    assert done.returncode == 1
    assert [line for line in lines if "NOT OK" in line] == [lines[4]]
    assert "rlm mcp install again" in lines[4]
    assert "read a line of one" in done.stdout
    assert [*(tmp_path / "state" / "provenance").iterdir()] == []


@pytest.mark.heavy
def test_the_doctor_tries_a_remote_gateway_with_its_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN, "utf-8")
    given = ("--root", str(make_tree(tmp_path)), "--token-file", str(tmp_path / "token"))
    with over_http(*given) as served:
        asked = ("mcp", "doctor", "--url", served.url, "--json")
        keeping = ("--token-env", "GATEWAY_TOKEN")
        home = str(tmp_path)
        well = rlm(*asked, *keeping, GATEWAY_TOKEN=TOKEN, HOME=home)
        wrong = rlm(*asked, *keeping, GATEWAY_TOKEN=TOKEN[::-1], HOME=home)
        elsewhere = rlm(
            *("mcp", "doctor", "--url", served.base + "/other", "--json"),
            *("--token-file", str(tmp_path / "token")),
            HOME=home,
        )
    assert well.returncode == 0, well.stdout
    assert json.loads(well.stdout)["ok"]
    for done, words in ((wrong, "requires a valid token"), (elsewhere, "ends with /mcp")):
        assert done.returncode == 1
        last = json.loads(done.stdout)["findings"][-1]
        assert (last["what"], last["well"]) == ("connection", False)
        assert words in last["state"]
        assert TOKEN not in done.stdout


@pytest.mark.heavy
def test_an_address_without_a_server_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = rlm("mcp", "doctor", "--url", f"http://127.0.0.1:{port}/mcp", HOME=str(tmp_path))
    assert done.returncode == 1
    assert "can't be reached" in done.stdout


@pytest.mark.heavy
def test_a_missing_root_is_reported(tmp_path: Path) -> None:
    done = rlm("mcp", "doctor", "--root", str(tmp_path / "nowhere"), HOME=str(tmp_path))
    assert done.returncode == 1
    assert "NOT OK" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
