"""Exported rows in the hands of the real `datasets` and TRL."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm.events import Event, ModelAsked
from rlm.messages import Message, ToolCall
from rlm.records.trajectories import open_trajectory
from rlm.records.trajectories.exports import export
from tests.records.trajectories.samples import ended, replied, scripted_log, started, written

datasets: Any = importlib.import_module("datasets")
data_utils: Any = importlib.import_module("trl.data_utils")

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "training.md"
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}"
    "{% if message.get('tool_calls') %}{{ message.tool_calls[0].function.name }}{% endif %}"
    "</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def tokenizer() -> Any:
    """A tokenizer with a chat template, made here: nothing is downloaded."""
    tokenizers: Any = importlib.import_module("tokenizers")
    transformers: Any = importlib.import_module("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    made.chat_template = TEMPLATE
    return made


def loaded(path: Path, format_: str, folder: Path) -> Any:
    """The rows of a log, as a trainer loads them."""
    file = folder / f"{format_}.jsonl"
    file.write_text("".join(export(open_trajectory(path), format_)), "utf-8")
    return load(file, folder)


def load(file: Path, folder: Path) -> Any:
    return datasets.load_dataset(
        "json", data_files=str(file), split="train", cache_dir=str(folder / "cache")
    )


async def test_trl_accepts_the_rows(tmp_path: Path, tokenizer: Any) -> None:
    rows = loaded(await scripted_log(tmp_path), "trl", tmp_path)
    assert len(rows) == 6
    assert set(rows.column_names) == {
        *("prompt", "completion", "kind", "run_id", "root_id", "depth", "score")
    }
    for row in rows:
        assert data_utils.is_conversational(row)
        told = data_utils.maybe_apply_chat_template(row, tokenizer)
        assert told["prompt"].endswith("<assistant>")
        assert told["completion"] == f"{row['completion'][0]['content']}</s>"
    calls = rows.filter(lambda row: row["kind"] == "call")
    assert [row["prompt"][0]["role"] for row in calls] == ["user"]


@pytest.mark.parametrize("format_", ["sft", "openai-chat"])
async def test_other_formats_can_be_loaded_too(
    tmp_path: Path, format_: str, tokenizer: Any
) -> None:
    rows = loaded(await scripted_log(tmp_path), format_, tmp_path)
    assert len(rows) == {"sft": 6, "openai-chat": 3}[format_]
    for row in rows:
        assert data_utils.is_conversational(row)
        assert data_utils.maybe_apply_chat_template(row, tokenizer)


def test_rows_with_tool_calls_can_be_loaded(tmp_path: Path, tokenizer: Any) -> None:
    def asked(step: int, *new: Message, count: int) -> ModelAsked:
        facts: dict[str, Any] = {"purpose": "step", "model": "m", "max_output_tokens": 9}
        return ModelAsked(run_id="a", step=step, new_messages=new, message_count=count, **facts)

    def call(number: int, **arguments: Any) -> tuple[ToolCall, ...]:
        return (ToolCall(f"c{number}", "python", arguments),)

    first, second = call(1, code="print(1)"), call(2, code="FINAL(1)", more=[1])
    events: list[Event] = [
        started("a"),
        asked(1, Message("system", "s"), Message("user", "go"), count=2),
        replied("a", 1, text="", tool_calls=first),
        asked(
            2,
            Message("assistant", "", tool_calls=first),
            Message("tool", "1", tool_call_id="c1"),
            count=4,
        ),
        replied("a", 2, text="so", tool_calls=second),
        ended("a"),
        started("b"),
        replied("b", 1, text="without a tool"),
        ended("b"),
    ]
    rows = loaded(written(tmp_path / "a.jsonl", events), "trl", tmp_path)
    assert len(rows) == 3
    assert rows[1]["completion"][0]["tool_calls"][0]["function"]["arguments"]["code"] == "FINAL(1)"
    assert [bool(row["tools"]) for row in rows] == [True, True, False]
    assert data_utils.maybe_apply_chat_template(rows[1], tokenizer)["completion"] == "sopython</s>"


def test_the_guide_from_benchmark_to_dataset_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run its commands and its program as written."""
    blocks = re.findall(r"```(bash|python)\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    commands = next(text for kind, text in blocks if kind == "bash")
    program = next(text for kind, text in blocks if kind == "python")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["sh", "-ec", commands],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(program, str(GUIDE), "exec"), names)
    rows = names["rows"]
    assert len(rows) == len({str(row["prompt"]) + str(row["completion"]) for row in rows}) == 6
    assert set(rows["score"]) == {1.0}
    assert len(set(rows["root_id"])) == 3, "of 12 trials, those that were right"
