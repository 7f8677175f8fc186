"""Measure corpora larger than memory: `python benchmarks/corpus.py --gb 2`.

Generated records in files of JSON lines are indexed by `rlm index`, which is killed in the middle
and started again; then they are searched and grepped, beside ripgrep, SQLite's FTS5 and plain
Python on the same files. Last, a run counts what only a model can tell apart: a script finds the
records, and an oracle that errs labels them. Needs the extra `corpus`, and `rg` for its rows.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import describe_machine, in_lines, load_average
from rlm import RLM, ScriptedClient
from rlm.data.corpus import Corpus
from rlm.testing import NoisyOracle

tantivy: Any = import_module("tantivy")

FILE_BYTES = 100_000_000
WORDS, LINES, DOCUMENT_LINES = 50_000, 20_000, 12
NEEDLE_EVERY = 10_000
MEGA = 1_000_000
OPENING = """
import time, sys
from rlm import RLM, ScriptedClient
from rlm.data.corpus import Corpus
started = time.perf_counter()
Corpus(sys.argv[1])
print((time.perf_counter() - started) * 1000)
"""
CELL = """```repl
import time
times = []
for query in {asked!r}:
    started = time.perf_counter()
    ctx.search(query)
    times.append((time.perf_counter() - started) * 1000)
FINAL(json.dumps(times))
```"""
COUNTING = """```repl
found = ctx.grep(r"needle-[0-9]+ of [a-z]+", max_matches=2_000)
labels = classify([each["text"] for each in found], ["sharp", "blunt"])
print(len(found), found.complete, Counter(labels))
FINAL(json.dumps(Counter(labels)))
```"""
ERROR_RATE = 0.05
PATTERNS = {
    "a rare literal": r"needle-\d*77\b",
    "a pattern with a literal": r"needle-[0-9]+ of [a-z]+",
    "a pattern without one": r"\b[xyz]{3}[aeiou]{3}[qj]\b",
    "a literal, any case": "(?i)NEEDLE-77",
}


def vocabulary(chooser: random.Random) -> list[str]:
    letters = "etaoinshrdlcumwfgypbvkjxqz"
    return ["".join(chooser.choices(letters, k=chooser.randint(3, 9))) for _ in range(WORDS)]


def generate(folder: Path, size_bytes: int) -> int:
    """Write records of about a kilobyte; return how many."""
    chooser = random.Random(1)
    words = vocabulary(chooser)
    weights = list(accumulate(1 / (rank + 5) for rank in range(WORDS)))
    lines = [" ".join(chooser.choices(words, cum_weights=weights, k=13)) for _ in range(LINES)]
    number = written = 0
    while written < size_bytes:
        path = folder / f"part-{written // FILE_BYTES:04}.jsonl"
        in_file = 0
        with path.open("w") as file:
            while in_file < FILE_BYTES and written + in_file < size_bytes:
                text = "\\n".join(chooser.choices(lines, k=DOCUMENT_LINES))
                if number % NEEDLE_EVERY == 0:
                    text += f"\\nneedle-{number} of haystack"
                year = 1990 + number % 35
                in_file += file.write(f'{{"id": "d{number}", "year": {year}, "text": "{text}"}}\n')
                number += 1
        written += in_file
    return number


# -- processes ------------------------------------------------------------------------------------


def anonymous_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+)", status)
    return int(found[1]) * 1024 if found else 0


def indexed(
    source: Path, corpus: Path, until: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Run `rlm index`, or kill it once `until` says so; return its times and its memory."""
    command = [sys.executable, "-m", "rlm", "index", str(source), "-o", str(corpus)]
    before, started, most = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        while process.poll() is None:
            most = max(most, anonymous_bytes(process.pid))
            if until():
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.5)
        _, said = process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": cpu,
        "anonymous_mb": most / MEGA,
        "said": said.splitlines()[-2:],
    }


def half_done(corpus: Path, documents: int) -> Callable[[], bool]:
    def check() -> bool:
        try:
            with Corpus(corpus) as opened:
                return len(opened) >= documents // 2
        except Exception:  # noqa: BLE001 - it is just being made
            return False

    return check


def opening_ms(corpus: Path) -> float:
    command = [sys.executable, "-c", OPENING, str(corpus)]
    times = [
        float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603
        for _ in range(5)
    ]
    return statistics.median(times)


# -- searching ------------------------------------------------------------------------------------


def queries(number: int) -> list[str]:
    """Return words and phrases, common and rare, as a model would ask for them."""
    chooser = random.Random(2)
    words = vocabulary(random.Random(1))

    def word() -> str:
        return words[int(chooser.paretovariate(0.3)) % WORDS]

    return [
        f'"{word()} {word()}"' if each % 5 == 4 else " ".join(word() for _ in range(each % 3 + 1))
        for each in range(number)
    ]


def quantiles(search: Callable[[str], object], asked: list[str]) -> dict[str, float]:
    times = []
    for query in asked:
        started = time.perf_counter()
        search(query)
        times.append((time.perf_counter() - started) * 1000)
    times.sort()
    return {"p50_ms": times[len(times) // 2], "p95_ms": times[int(len(times) * 0.95)]}


def from_a_cell(corpus: Path, asked: list[str]) -> dict[str, float]:
    """Search from a cell of a run, in the sandbox: with the way to the host and back."""
    with RLM(ScriptedClient([CELL.format(asked=asked)])) as rlm:
        times = json.loads(str(rlm.ask("How long?", corpus).answer))
    times.sort()
    return {"p50_ms": times[len(times) // 2], "p95_ms": times[int(len(times) * 0.95)]}


def counted_by_meaning(corpus: Path, documents: int) -> dict[str, Any]:
    """Ask how many needles are sharp, which the oracle knows and the text does not say."""
    numbers = range(0, documents, NEEDLE_EVERY)
    gold = {f"needle-{each} of haystack": ("blunt", "sharp")[each // 7 % 2] for each in numbers}
    oracle = NoisyOracle(gold, error_rate=ERROR_RATE, noise="concentrated")
    started = time.perf_counter()
    with RLM(ScriptedClient([COUNTING]), sub_model=oracle) as rlm:
        result = rlm.ask("How many needles are sharp, and how many are blunt?", corpus)
    return {
        "found": json.loads(str(result.answer)),
        "gold": dict(Counter(gold.values())),
        "requests": result.usage.total.requests,
        "seconds": time.perf_counter() - started,
    }


def fts5(source: Path, folder: Path, asked: list[str]) -> dict[str, float]:
    """Index the records with SQLite's FTS5 and search them, with passages."""
    database = sqlite3.connect(folder / "fts5.sqlite")
    database.execute("pragma synchronous = off")
    database.execute("create virtual table texts using fts5(text, year unindexed)")
    started, size = time.perf_counter(), 0
    for path in sorted(source.glob("*.jsonl")):
        with path.open() as file:
            rows = ((each["text"], each["year"]) for each in map(json.loads, file))
            database.executemany("insert into texts values (?, ?)", rows)
        database.commit()
        size += path.stat().st_size
    seconds = time.perf_counter() - started
    sql = (
        "select rowid, bm25(texts), snippet(texts, 0, '', '', '…', 20) from texts "
        "where texts match ? order by rank limit 10"
    )

    def search(query: str) -> object:
        match = query if query.startswith('"') else " OR ".join(query.split())
        return database.execute(sql, (match,)).fetchall()

    found = {"mb_per_second": size / MEGA / seconds, **quantiles(search, asked)}
    database.close()
    return found


def tantivy_alone(source: Path, folder: Path) -> float:
    """Index only the texts with tantivy; return megabytes a second of processor time."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text")
    (folder / "tantivy").mkdir()
    writer = tantivy.Index(builder.build(), str(folder / "tantivy")).writer(160_000_000, 1)
    before, size = resource.getrusage(resource.RUSAGE_SELF), 0
    for path in sorted(source.glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                document = tantivy.Document()
                document.add_text("text", json.loads(line)["text"])
                writer.add_document(document)
        size += path.stat().st_size
    writer.commit()
    writer.wait_merging_threads()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return size / MEGA / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def plain_lines(source: Path) -> Iterator[str]:
    for path in sorted(source.glob("*.jsonl")):
        with path.open() as file:
            for line in file:
                yield from json.loads(line)["text"].split("\n")


def timed(action: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    best, value = float("inf"), None
    for _ in range(rounds):
        started = time.perf_counter()
        value = action()
        best = min(best, time.perf_counter() - started)
    return best, value


def greps(corpus: Corpus, source: Path, *, plain: bool, rounds: int) -> list[dict[str, Any]]:
    """Grep for each pattern, by rlm and by others; the best of several rounds counts."""
    rows = []
    program = shutil.which("rg")
    for name, pattern in PATTERNS.items():
        ignore = pattern.startswith("(?i)")
        bare = pattern.removeprefix("(?i)")
        seconds, found = timed(lambda: corpus.grep(bare, 10_000, ignore), rounds)  # noqa: B023
        assert found.complete
        assert not found.changed
        row: dict[str, Any] = {"pattern": name, "matches": len(found), "seconds": seconds}
        if program:
            command = [program, "--count-matches", *(["-i"] if ignore else []), bare, str(source)]
            row["rg_seconds"], _ = timed(
                lambda: subprocess.run(command, capture_output=True, check=False),  # noqa: B023, S603
                rounds,
            )
        if plain:
            compiled = re.compile(bare, re.IGNORECASE if ignore else 0)
            row["python_seconds"], lines = timed(
                lambda: sum(1 for line in plain_lines(source) if compiled.search(line)),  # noqa: B023
                1,
            )
            assert lines == len(found), (name, lines, len(found))
        rows.append(row)
    return rows


# -- the table ------------------------------------------------------------------------------------


def made(source: Path, size_bytes: int) -> int:
    """Write the records, unless an earlier run did; return how many there are."""
    count = source.with_suffix(".count")
    if not count.exists():
        source.mkdir()
        count.write_text(str(generate(source, size_bytes)))
    return int(count.read_text())


def measure(folder: Path, source: Path, gigabytes: float, peers: bool) -> dict[str, Any]:
    corpus = folder / "corpus"
    documents = made(source, int(gigabytes * 1e9))
    size = sum(path.stat().st_size for path in source.iterdir())
    report: dict[str, Any] = {"documents": documents, "mb": size / MEGA, "load": load_average()}
    killed = indexed(source, corpus, half_done(corpus, documents))
    with Corpus(corpus) as opened:
        kept = len(opened)
    resumed = indexed(source, corpus)
    with Corpus(corpus) as opened:
        assert len(opened) == documents
    report["kill"] = {"kept": kept, "seconds": [killed["seconds"], resumed["seconds"]]}
    report["index"] = {
        "seconds": killed["seconds"] + resumed["seconds"],
        "cpu_seconds": killed["cpu_seconds"] + resumed["cpu_seconds"],
        "anonymous_mb": max(killed["anonymous_mb"], resumed["anonymous_mb"]),
    }
    report["again"] = indexed(source, corpus)
    report["index_mb"] = sum(p.stat().st_size for p in corpus.rglob("*") if p.is_file()) / MEGA
    report["opening_ms"] = opening_ms(corpus)
    asked = queries(200)
    with Corpus(corpus) as opened:
        quantiles(opened.search, asked[:20])
        report["search"] = quantiles(opened.search, asked)
        report["where"] = quantiles(lambda q: opened.search(q, where={"year": 2001}), asked)
        report["cell"] = from_a_cell(corpus, asked[:50])
        report["grep"] = greps(opened, source, plain=peers, rounds=3 if gigabytes < 5 else 1)
        report["question"] = counted_by_meaning(corpus, documents)
        report["anonymous_mb"] = anonymous_bytes(os.getpid()) / MEGA
    if peers:
        report["fts5"] = fts5(source, folder, asked[:20])
        report["tantivy"] = tantivy_alone(source, folder)
    return report


def table(report: dict[str, Any]) -> str:
    index, size = report["index"], report["mb"]
    rows = [
        ("documents", f"{report['documents']:,} in {size:,.0f} MB of JSON lines"),
        ("index, a second, with the kill", f"{size / index['seconds']:.1f} MB"),
        ("index, a second of processor time", f"{size / index['cpu_seconds']:.1f} MB"),
        ("index, anonymous memory", f"{index['anonymous_mb']:.0f} MB"),
        ("size of the corpus folder", f"{report['index_mb']:,.0f} MB"),
        ("nothing changed, index again", f"{report['again']['seconds']:.1f} s"),
        ("killed half-way: documents kept", f"{report['kill']['kept']:,}"),
        ("… seconds before the kill, and to finish", _both(report["kill"]["seconds"])),
        ("opening", f"{report['opening_ms']:.1f} ms"),
        ("search, p50 and p95", _both(report["search"].values(), "ms")),
        ("search from a cell, p50 and p95", _both(report["cell"].values(), "ms")),
        ("search with where, p50 and p95", _both(report["where"].values(), "ms")),
        ("reading, anonymous memory", f"{report['anonymous_mb']:.0f} MB"),
    ]
    if "fts5" in report:
        alone = "tantivy alone, only the texts, a second of processor time"
        rows.append((alone, f"{report['tantivy']:.1f} MB"))
        found = report["fts5"]
        rows.append(("FTS5: index, a second", f"{found['mb_per_second']:.1f} MB"))
        rows.append(("FTS5: p50 and p95", f"{found['p50_ms']:.1f} and {found['p95_ms']:.1f} ms"))
    question = report["question"]
    rows += [
        (f"counted by meaning, {ERROR_RATE:.0%} of labels wrong", _labels(question["found"])),
        ("… what is right", _labels(question["gold"])),
        ("… model calls and seconds", f"{question['requests']} and {question['seconds']:.1f} s"),
    ]
    lines = ["| what | measured |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    lines += ["", "| grep for | matches | rlm | rg | plain Python |", "|---|---|---|---|---|"]
    for row in report["grep"]:
        times = [row.get(name) for name in ("seconds", "rg_seconds", "python_seconds")]
        shown = " | ".join("–" if each is None else f"{each:.2f} s" for each in times)
        lines.append(f"| {row['pattern']} | {row['matches']:,} | {shown} |")
    return "\n".join(lines)


def _both(values: Any, unit: str = "s") -> str:
    first, second = values
    return f"{first:.1f} and {second:.1f} {unit}"


def _labels(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="size of the generated text")
    parser.add_argument("--without-peers", action="store_true", help="no FTS5 and plain Python")
    parser.add_argument("--folder", type=Path, help="where to put it all; removed at the end")
    parser.add_argument(
        "--source", type=Path, help="a folder for the text, used again if it is there"
    )
    parser.add_argument("--publish", type=Path, help="write the table to this file")
    given = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        source = given.source or Path(name) / "source"
        report = measure(Path(name), source, given.gb, not given.without_peers)
    shown = (
        f"{table(report)}\n\n```\n{in_lines(machine)}\nload at the start  {report['load']}\n```\n"
    )
    print(shown)
    if given.publish:
        title = f"# Corpora: python benchmarks/corpus.py --gb {given.gb:g}\n\n"
        given.publish.write_text(title + shown)


if __name__ == "__main__":
    main()
