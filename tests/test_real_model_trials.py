"""The trials of `benchmarks/real_model`, against an endpoint that reads instead of thinking."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.real_model.methods import METHODS, Setup
from benchmarks.real_model.report import rows_of, write_report
from benchmarks.real_model.samples import make_sample
from benchmarks.real_model.trials import Trial, main, read_lines
from rlm.bench.random_text import SUBJECTS, labelled_texts
from rlm.testing.label_prompts import Prompt, Verdict, written
from tests.endpoint import endpoint, texts

LABELS = {
    text: label
    for name in SUBJECTS
    for label, own in zip(labelled_texts(name).labels, labelled_texts(name).texts, strict=True)
    for text in own
}
NEEDLE = re.compile(r"The access number for ([a-z-]+) is (\d{7})\.")
CELL = """```repl
import re
FINAL(re.findall(r"access number for [a-z-]+ is (\\d{7})", context)[0])
```"""


def reader(body: dict[str, Any]) -> str:
    """Answer what a request says, from its own text; write code if it is a step of the loop."""
    asked = str(body["messages"][-1]["content"])
    prompt = Prompt.read(asked)
    if prompt is not None:
        return written(prompt, {n: Verdict(LABELS[text]) for n, text in prompt.items.items()})
    if "```repl" in texts(body) and "`context`" in texts(body):
        return CELL
    found = NEEDLE.search(asked)
    listed = re.findall(r"^(\d+)\. (.*(?:\n   .*)*)", asked, re.MULTILINE)
    if "Items:\n" in asked and listed:
        hits = [(number, NEEDLE.search(text)) for number, text in listed]
        return "\n".join(f"{number}: {hit[2] if hit else 'none'}" for number, hit in hits)
    return found[2] if found else "none"


def options(folder: Path, url: str, *more: str) -> list[str]:
    few = ["--sizes", "2k", "--n", "2", "--model", "m-1.5b", "--concurrency", "2"]
    return ["--out", str(folder), "--url", url, *few, *more]


def by_trial(folder: Path) -> dict[Trial, dict[str, Any]]:
    return {Trial.of(line): line for line in read_lines(folder)}


# -- samples and methods ---------------------------------------------------------------------------


def test_a_sample_follows_from_its_seed_and_is_scored() -> None:
    one, same, other = (make_sample("counting", 2_000, seed) for seed in (3, 3, 4))
    assert one.context == same.context != other.context
    assert one.query.startswith("Each line of the context")
    assert "How many instances have the label" in one.query
    assert one.score(one.gold) == 1.0
    assert one.score("none") == 0.0
    assert one.labelling is not None
    assert one.labelling.answer([LABELS[item] for item in one.labelling.items]) == one.gold
    assert make_sample("lookup", 2_000, 0).labelling is None


def test_every_method_answers_within_its_limits(tmp_path: Path) -> None:
    methods = "plain,operators,mapreduce,loop"
    with endpoint(reader) as served:
        assert main(options(tmp_path, served.url, "--tasks", "lookup", "--methods", methods)) == 0
        only = ["--tasks", "counting", "--methods", "operators"]
        assert main(options(tmp_path, served.url, *only)) == 0
        asked = len(served.bodies)
    lines = by_trial(tmp_path)
    assert len(lines) == 10
    assert {(each["status"], each["score"]) for each in lines.values()} == {("answered", 1.0)}
    assert sum(each["input_tokens"] for each in lines.values()) == 500 * asked
    assert {body["temperature"] for body in served.bodies} == {0}
    report = (tmp_path / "report.md").read_text("utf-8")
    assert "| operators | 2k | 2 | 2 | 34–100 | 1.00 |" in report


def test_a_context_beyond_the_window_is_too_large_for_a_plain_call(tmp_path: Path) -> None:
    with endpoint(reader) as served:
        more = ("--tasks", "lookup", "--methods", "plain", "--window", "1500")
        assert main(options(tmp_path, served.url, *more)) == 0
        assert served.bodies == []
    assert {each["status"] for each in read_lines(tmp_path)} == {"too large"}
    (row,) = rows_of(read_lines(tmp_path))
    assert (row.samples, row.hits, row.too_large) == (2, 0, 2)


def test_reaching_a_limit_ends_one_trial_and_not_the_others(tmp_path: Path) -> None:
    with endpoint(reader) as served:
        more = ("--tasks", "counting", "--methods", "operators", "--max-calls", "1")
        assert main(options(tmp_path, served.url, *more)) == 0
        assert len(served.bodies) == 2
    assert [each["status"] for each in read_lines(tmp_path)] == ["limit", "limit"]
    assert all(each["score"] is not None for each in read_lines(tmp_path))


# -- continuing ------------------------------------------------------------------------------------


def test_repeating_a_command_runs_only_missing_trials(tmp_path: Path) -> None:
    only = ("--tasks", "lookup", "--methods", "plain", "--concurrency", "1")
    with endpoint(reader) as served:
        main(options(tmp_path, served.url, *only))
        path = tmp_path / "trials.jsonl"
        first, second = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(first + second[:40])  # killed while it wrote
        main(options(tmp_path, served.url, *only))
        assert len(served.bodies) == 3
        main(options(tmp_path, served.url, *only, "--n", "3"))
        assert len(served.bodies) == 4
    assert path.read_bytes().startswith(first)
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1, 2]


def test_failed_trials_are_repeated_and_a_dead_endpoint_is_given_up(tmp_path: Path) -> None:
    only = ("--tasks", "lookup", "--methods", "plain", "--concurrency", "1")
    setup = Setup("http://127.0.0.1:9/v1", "m", 9_000, 9, 90_000, 1.0, 99)
    found = asyncio.run(METHODS["plain"](setup, make_sample("lookup", 2_000, 0)))
    assert (found.status, found.answer) == ("failed", None)
    line = {**Trial("lookup", 2_000, 0, "plain")._asdict(), "status": "failed", "score": None}
    (tmp_path / "trials.jsonl").write_text(json.dumps(line) + "\n")
    with endpoint(reader) as served:
        assert main(options(tmp_path, served.url, *only)) == 0
    assert {each["status"] for each in read_lines(tmp_path)} == {"answered"}


def test_results_of_another_model_are_not_mixed(tmp_path: Path) -> None:
    only = ("--tasks", "lookup", "--methods", "plain")
    with endpoint(reader) as served:
        main(options(tmp_path, served.url, *only))
        with pytest.raises(SystemExit, match="choose another --out"):
            main(options(tmp_path, served.url, *only, "--model", "other"))


@pytest.mark.parametrize(
    ("python", "told"),
    [(None, "pass --reference-python"), (sys.executable, "")],
)
def test_without_the_reference_installed_its_trials_fail_with_a_reason(
    python: str | None, told: str
) -> None:
    """Here `import rlm` is this engine, which takes the reference's spelling."""
    with endpoint(lambda body: CELL) as served:
        setup = Setup(served.url, "m", 32_768, 99, 90_000, 60.0, 999, python)
        sample = make_sample("lookup", 2_000, 0)
        found = asyncio.run(METHODS["reference"](setup, sample))
    if python is None:
        assert (found.status, found.answer) == ("failed", None)
        assert told in found.detail
    else:
        assert (found.status, found.answer) == ("answered", sample.gold)
        assert found.calls == len(served.bodies)


# -- the report ------------------------------------------------------------------------------------


def line(method: str, size: int, seed: int, **given: Any) -> dict[str, Any]:
    usual = {
        "status": "answered",
        "score": 1.0,
        "calls": 2,
        "input_tokens": 100 * size,
        "output_tokens": 5,
        "seconds": 1.5,
    }
    return {"task": "lookup", "method": method, "size": size, "seed": seed, **usual, **given}


def test_the_report_counts_hits_and_omits_failures(tmp_path: Path) -> None:
    lines = [line("operators", 8_000, seed, score=float(seed < 3)) for seed in range(4)]
    lines += [line("operators", 8_000, 9, status="failed", score=None)]
    lines += [line("plain", 32_000, 0, status="too large", score=0.0)]
    lines += [line("reference", 32_000, 0, status="limit", score=0.5)]
    unknown = {"calls": None, "input_tokens": None, "output_tokens": None}
    lines += [line("reference", 32_000, 1, status="limit", score=0.0, **unknown)]
    plain, own, other = rows_of(lines)
    assert (own.samples, own.hits, own.failed) == (4, 3, 1)
    assert (plain.method, plain.too_large, other.limited) == ("plain", 1, 2)
    assert (other.samples, other.calls, other.tokens) == (2, 2.0, 3_200_005.0)
    text = write_report(lines, tmp_path).read_text("utf-8")
    assert (
        "| operators | 8k | 4 | 3 | 30–95 | 0.75 | 2.0 | 800,005 | 1.5 | 1 failed, not counted |"
        in text
    )
    assert "| plain | 32k | 1 | 0 | – | 0.00 | – | – | – | 1 too large |" in text
    for kind in ("accuracy", "tokens"):
        picture = ElementTree.parse(tmp_path / f"lookup-{kind}.svg")
        assert picture.getroot().tag.endswith("svg")
