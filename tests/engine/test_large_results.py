"""A tool's large result is a value in the REPL: no prompt holds it, and events hold its ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlm import RLM, ScriptedClient
from rlm.events import MAX_RESULT_CHARS, ToolCalled
from rlm.logger import RLMLogger
from rlm.replay import replay

SIZE = 10_000_000


def cell(code: str) -> str:
    return f"```repl\n{code}\n```"


def archive(size: int = SIZE) -> list[str]:
    """All lines of the archive."""
    return ["first", "x" * (size - 20), "last"]


def ask(*cells: str, **options: Any) -> tuple[Any, ScriptedClient]:
    model = ScriptedClient([cell(each) for each in cells])
    with RLM(model, tools=[archive], **options) as rlm:
        return rlm.ask(
            "How much is there?", run_id="large" if "journal" in options else None
        ), model


def sent_chars(model: ScriptedClient) -> int:
    return max(
        sum(len(str(message.content)) for message in request.messages) for request in model.requests
    )


def tool_events(result: Any) -> list[ToolCalled]:
    return [event for event in result.events if isinstance(event, ToolCalled)]


@pytest.mark.parametrize(
    "code",
    [
        "found = archive()",
        "archive()",
        "print(archive())",
        "found = archive()\nfound",
        "raise ValueError(archive()[1])",
        "import sys\nprint(archive()[1], file=sys.stderr)",
    ],
)
def test_no_prompt_holds_a_large_result_whatever_the_cell_does(code: str) -> None:
    _, plain = ask("1", "FINAL(1)")
    _, model = ask(code, "FINAL(1)")
    assert sent_chars(model) < sent_chars(plain) + 50_000


def test_the_variable_holds_the_whole_result() -> None:
    result, model = ask("found = archive()", "FINAL([len(found), len(found[1]), found[2]])")
    assert result.answer == str([3, SIZE - 20, "last"])
    assert "new: found = list[3]" in str(model.requests[1].messages[-1].content)


def test_an_event_holds_the_ends_of_a_long_result_and_all_of_a_short_one() -> None:
    result, _ = ask("a = archive()", f"b = archive({MAX_RESULT_CHARS // 2})", "FINAL(1)")
    long, short = tool_events(result)
    assert len(long.result) < MAX_RESULT_CHARS + 100
    assert long.result.startswith('["first", "xxx')
    assert long.result.endswith('xxx", "last"]')
    assert f"of {len(json.dumps(archive())):,} characters cut …" in long.result
    assert short.result == '["first", "' + "x" * (MAX_RESULT_CHARS // 2 - 20) + '", "last"]'


def test_a_run_with_a_large_result_is_replayed_in_full_from_its_journal(tmp_path: Path) -> None:
    """The journal has the whole result: no tool is called again, and a replay finds it."""
    cells = ("found = archive()", "FINAL(len(found[1]))")
    first, _ = ask(*cells, journal=tmp_path)
    (journal,) = tmp_path.glob("runs/*.sqlite")
    report = replay(journal)
    assert report.same, report.differences
    assert first.answer == str(SIZE - 20)


def test_replaying_a_log_with_a_truncated_result_says_to_use_the_journal(tmp_path: Path) -> None:
    logger = RLMLogger(log_dir=tmp_path)
    ask("found = archive()", "FINAL(len(found[1]))", logger=logger)
    log = Path(str(logger.log_file_path))
    assert log.stat().st_size < 10 * MAX_RESULT_CHARS
    report = replay(log)
    assert not report.same
    assert "was too long for a log; replay the run's journal" in str(report.differences)
