"""The checks of test_documents.py can fail: each is tried on a bad sample."""

from pathlib import Path

import pytest

from tests.cli.local_servers import nowhere
from tests.shape.documents import blocks_of, broken_links, commands_of, missing_output
from tests.shape.test_documents import environment, job_of, run_commands, run_job

GOOD = """
# Title

```python
x = 1
```

Text.

```python
print(x, "and more")  # prints: 1 and ...
```

<!-- not run: needs a key -->

```python
raise SystemExit(3)
```
"""


def _run(text: str, folder: Path) -> str:
    done = run_job(job_of(Path("sample.md"), blocks_of(text)), folder)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "failed"


def test_blocks_share_a_namespace_and_can_be_skipped(tmp_path: Path) -> None:
    assert [block.reason_not_run for block in blocks_of(GOOD)] == [None, None, "needs a key"]
    assert _run(GOOD, tmp_path) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```python\n1 / 0\n```", 'File "sample.md", line 2'),
        ("```python\nprint(1)  # prints: 2\n```", "does not print '2'"),
        ("```python\nprint(2)\nprint(1)\n# prints: 1\n# prints: 2\n```", "does not print '2'"),
        ("<!-- not run: -->\n```python\nraise SystemExit(3)\n```", "failed"),
        ("<!-- not run: x -->\nText\n```python\nraise SystemExit(3)\n```", "failed"),
        ("1. item\n   ```py\n   1 / 0\n   ```", "ZeroDivisionError"),
        (
            "```python\nimport socket\nsocket.create_connection(('192.0.2.1', 9))\n```",
            "NetworkBlocked",
        ),
    ],
)
def test_a_failing_block_is_found(tmp_path: Path, text: str, words: str) -> None:
    assert words in _run(text, tmp_path)


def test_output_is_matched_line_by_line_in_order() -> None:
    assert missing_output(["a", "b ... d"], "x\na\nb c d\n") is None
    assert missing_output(["a"], "ab\n") == "a"
    assert missing_output(["b", "a"], "a\nb\n") == "a"


def test_commands_and_their_expected_output_are_parsed() -> None:
    console = blocks_of("```console\n$ rlm a \\\n  b\nout\n$ make x\n```")[0]
    assert commands_of(console) == [("rlm a    b", ("out",)), ("make x", ())]
    bash = blocks_of("```bash\n# first\npython x.py  # then\n\nrlm y\n```")[0]
    assert commands_of(bash) == [("python x.py", ()), ("rlm y", ())]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("$ python -c 'print(1)'\n1", None),
        ("$ make help\n  make test ...", None),
        ("$ python -c 'print(1)'\n2", "does not print '2'"),
        ("$ python -c 'raise SystemExit(3)'", "exit 3"),
        ("$ curl example.com", "not: curl"),
    ],
)
def test_shell_blocks_are_run_and_compared(tmp_path: Path, code: str, words: str | None) -> None:
    complaint = run_commands(blocks_of(f"```console\n{code}\n```")[0], tmp_path)
    assert complaint is None if words is None else words in (complaint or "")


def test_no_key_and_no_model_reach_executed_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("RLM_MODEL", "some/model")
    assert set(environment(tmp_path / "home")) == {"HOME", "PATH", "LANG", *nowhere()}


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# Some `heading`, here\n", "utf-8")
    text = (
        "[ok](there.md) [ok](there.md#some-heading-here) [far](https://a.b/x) [here](#top)\n"
        "# Top\n`[code](nowhere.md)`\n```\n[fenced](nowhere.md)\n```\n"
        "[bad](nowhere.md)\n[bad](there.md#nope)\n[bad]: gone.md\n[two\nlines](nowhere.md)\n"
    )
    (tmp_path / "a.md").write_text(text, "utf-8")
    assert [line.split(": ")[0] for line in broken_links(tmp_path / "a.md", tmp_path)] == [
        "a.md:7",
        "a.md:8",
        "a.md:9",
        "a.md:10",
    ]
