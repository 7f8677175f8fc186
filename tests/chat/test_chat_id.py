"""The turns of a chat before and after saving are one group, whatever the file says."""

import json
import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rlm.chat import ChatStorage
from rlm.chat.file import write_saved
from rlm.chat.saved import About
from rlm.logger import RLMLogger
from tests.chat.test_saving import asked, code, saved


async def test_turns_before_and_after_saving_are_one_group(tmp_path: Path) -> None:
    path, logs = tmp_path / "chat.rlm", tmp_path / "logs"
    await saved(path, code("FINAL(0)"), logger=RLMLogger(log_dir=str(logs)))
    await asked(path, code("FINAL(1)"), logger=RLMLogger(log_dir=str(logs)))
    await saved(tmp_path / "other.rlm", code("FINAL(2)"), logger=RLMLogger(log_dir=str(logs)))
    groups = [
        json.loads(line)["settings"]["group"]["name"]
        for log in sorted(logs.iterdir(), key=lambda each: each.stat().st_mtime_ns)
        for line in log.read_text("utf-8").splitlines()
        if '"run_started"' in line
    ]
    assert len(groups) == 3
    assert groups[0] == groups[1] != groups[2]


@given(st.text(max_size=30))
def test_an_invalid_chat_id_in_a_file_is_replaced(chat_id: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chat.rlm")
        write_saved(path, About(chat_id=chat_id), [], {}, None)
        storage = ChatStorage()
        storage.load(path)
        assert re.fullmatch("[0-9a-f]{12}", storage.chat_id)
        storage.close()
