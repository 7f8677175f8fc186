"""The plugin installed from wheels in a fresh environment, by the README's one command."""

import json
from pathlib import Path

from fresh_install import build_wheel, check_page, install, run

NAME = "recursivelm-acp"
EXTRA_REQUESTS = 0
"""Every request is the engine's own; `test_prompts` counts them."""

EDITOR = """
import asyncio, sys
from pathlib import Path
import acp


class Editor:
    said = ""

    def on_connect(self, agent):
        pass

    async def session_update(self, session_id, update, **_):
        if update.session_update == "agent_message_chunk":
            self.said += update.content.text


async def main():
    program = str(Path(sys.executable).parent / "rlm")
    options = ("acp", "-m", "offline/extractive")
    async with acp.spawn_agent_process(editor := Editor(), program, *options) as (agent, _):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd=str(Path("project").resolve()), mcp_servers=[])
        text = acp.text_block("What is the access code for the tide gate?")
        ended = await agent.prompt(session_id=session.session_id, prompt=[text])
    print(ended.stop_reason, "4471902" in editor.said)


asyncio.run(main())
"""


def test_the_wheel_holds_the_package_its_licence_and_nothing_else(tmp_path: Path) -> None:
    wheel = build_wheel(NAME, tmp_path)
    assert {name.split("/")[0].split("-")[0] for name in wheel.names} == {"recursivelm_acp"}
    assert any(name.endswith("licenses/LICENSE") for name in wheel.names)
    assert "acp = recursivelm_acp.command:acp" in wheel.entry_points
    assert "Requires-Dist: recursivelm[mcp]>=0.1" in wheel.metadata


def test_one_command_installs_it_and_an_editor_asks(tmp_path: Path) -> None:
    fresh = install(NAME, tmp_path)
    (tmp_path / "editor.py").write_text(EDITOR)
    (tmp_path / "project").mkdir()
    text = "The lamp was replaced.\n\nThe access code for the tide gate is 4471902.\n"
    (tmp_path / "project" / "minutes.txt").write_text(text)
    said = run(str(fresh.bin / "python"), "editor.py", folder=tmp_path, HOME=str(tmp_path))
    assert said == "end_turn True\n"
    listed = run(str(fresh.bin / "rlm"), "--help", folder=tmp_path)
    assert "Serve an agent for editors (ACP)." in listed
    doctor = run(str(fresh.bin / "rlm"), "doctor", "--json", folder=tmp_path, HOME=str(tmp_path))
    assert "recursivelm-acp" in json.dumps(json.loads(doctor))
    check_page(NAME, fresh, EXTRA_REQUESTS)
