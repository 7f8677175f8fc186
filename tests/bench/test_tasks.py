"""Samples: the same bytes everywhere, of the requested size, under their documented names."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlm.bench.plan import CHARS_A_TOKEN, parse_size, parse_sizes, show_size
from rlm.bench.random_text import SUBJECTS, labelled_texts
from rlm.bench.registry import find_tasks, known_tasks
from rlm.bench.task import Sample, Task
from rlm.errors import ConfigError

TASKS: dict[str, Task] = {
    spec: task for name in known_tasks() for spec, task in find_tasks(name).items()
}
SIZE = 4_000
GOLDEN = {
    "s-niah/single": "0a713fb640d506df",
    "s-niah/multi-key": "c3611b2cfabb5a59",
    "s-niah/multi-value": "67a976e3ead80e0f",
    "s-niah/multi-query": "faa9801726014318",
    "oolong/counting": "418bea1180aac24b",
    "oolong/user": "f55f77d659c5081a",
    "oolong/timeline": "dd22436982b7a51d",
    "oolong-pairs": "899088b0b8e30c41",
    "multihop/2-hops": "5b2b66b525a1fb81",
    "multihop/3-hops": "0201d9bb4b0f8a41",
    "multihop/4-hops": "19a8e948e8968d22",
    "codeqa/calls": "2ed1473ffc394bc6",
    "codeqa/raises": "e51f033bbbc6eb0a",
    "codeqa/hierarchy": "4c8fc8a63b917f8f",
    "graphwalks/bfs": "ff72ebceb3b2e641",
    "graphwalks/parents": "e841bd69b507f051",
}
"""Of query, context and gold of seed 7; if one changes, so must the task's version."""


def one(spec: str) -> Task:
    return TASKS[spec]


def digest_of(sample: Sample) -> str:
    whole = json.dumps([sample.query, sample.context, sample.gold], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


@pytest.mark.parametrize("spec", TASKS)
def test_a_seed_gives_the_same_bytes_with_every_python(spec: str) -> None:
    assert digest_of(one(spec).generate(7, SIZE)) == GOLDEN[spec]


@pytest.mark.parametrize("spec", TASKS)
def test_contexts_have_the_requested_size(spec: str) -> None:
    for size in (one(spec).smallest, 9_000):
        for seed in range(2):
            context = one(spec).generate(seed, size).context
            assert len(context) <= size * CHARS_A_TOKEN
            least = 0.8 if spec.startswith("codeqa") else 0.9  # files and lines are not cut in two
            assert len(context) > least * size * CHARS_A_TOKEN
            assert context.isascii()


@pytest.mark.parametrize("spec", TASKS)
def test_samples_can_be_read_twice_and_differ_between_seeds(spec: str) -> None:
    first, second = (one(spec).generate(seed, SIZE) for seed in (1, 2))
    assert first.context == first.context
    assert first.context != second.context
    assert json.loads(json.dumps(first.gold)) == first.gold
    assert one(spec).score(one(spec).reference(first.gold), first.gold) == 1.0


# -- sizes and names -------------------------------------------------------------------------------


def test_sizes_are_parsed_and_shown_with_units() -> None:
    assert parse_sizes("8k, 32K,1M,1.5m,8000") == (8_000, 32_000, 1_000_000, 1_500_000)
    assert [show_size(size) for size in (8_000, 1_500_000, 777, 128_000, 10**7)] == [
        *("8k", "1.5M", "777", "128k", "10M")
    ]
    for wrong in ("", "k", "8g", "-8k", "1e6", "100", "1000M", "8 k"):
        with pytest.raises(ConfigError):
            parse_size(wrong)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nothing", "unknown task 'nothing'; choose one of s-niah"),
        ("sniah", "unknown task 'sniah'; did you mean 's-niah'?"),
        ("s-niah,dept=3", "has no option 'dept'; did you mean 'depth'?"),
        ("s-niah/other", "has no variant 'other'; variants: single"),
        ("s-niah,width=3", "has no option 'width'; options: depth"),
        ("s-niah,depth=300", "0 to 100 percent"),
        ("s-niah,depth=deep", "0 to 100 percent"),
        ("codeqa,tree=/nowhere/at/all", "there is no folder"),
        ("rlm.bench.random_text:Dice", "not a class derived from rlm.bench.Task"),
        ("rlm.bench.nowhere:Dice", "write a file as"),
        ("oolong:user", "write a variant as oolong/user"),
        ("nowhere.py:Dice", "there is no file"),
        ("s niah", "is not a task"),
    ],
)
def test_an_unknown_task_is_reported(spec: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        find_tasks(spec)


def test_an_option_is_part_of_the_name() -> None:
    assert list(find_tasks("s-niah,depth=50")) == [
        f"s-niah/{variant},depth=50"
        for variant in ("single", "multi-key", "multi-value", "multi-query")
    ]


def test_bundled_texts_are_small_and_licensed() -> None:
    folder = Path(__file__).parents[2] / "src" / "rlm" / "bench" / "data"
    licences = (folder / "LICENSES.md").read_text("utf-8")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
    for name in SUBJECTS:
        assert f"`{name}.tsv`" in licences
        labels, texts = labelled_texts(name)
        assert 2 <= len(labels) <= 10
        assert all(len(each) >= 50 for each in texts)
        every = [text for each in texts for text in each]
        assert len(set(every)) == len(every)
        assert not any("||" in text or "\n" in text or not text.isascii() for text in every)


MEASURED = """
import re, sys
from pathlib import Path
from rlm.bench.registry import find_tasks
(task,) = find_tasks(sys.argv[1]).values()
sample = task.generate(1, 10_000_000)
chars = sum(map(len, sample.pieces()))
print(chars, re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
"""Peak memory of this program as Linux reports it: `ru_maxrss` starts with its parent's value."""


@pytest.mark.heavy
@pytest.mark.parametrize("spec", [next(iter(find_tasks(name))) for name in known_tasks()])
def test_ten_million_tokens_are_made_piece_by_piece(spec: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, spec], capture_output=True, text=True, check=True
    )
    chars, peak_kilobytes = map(int, done.stdout.split())
    assert 0.99 * 40_000_000 < chars <= 40_000_000
    assert peak_kilobytes < 80_000  # Python and the task; the text alone would have 40,000
