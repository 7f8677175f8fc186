"""Rebuild src/rlm/bench/data/*.tsv, the labelled texts of `oolong`, from published datasets.

    python tools/bench_texts.py FOLDER

FOLDER holds `banking77/train.csv`, `clinc150/data_full.json`, `clinc150/domains.json` and
`sms_spam/SMSSpamCollection`, as their authors publish them. src/rlm/bench/data/LICENSES.md lists
what is taken and changed: labels that are easy to tell apart, one text per line.
"""

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "rlm" / "bench" / "data"
MAX_CHARS = 200
FEWEST_CHARS = 12
A_LABEL = {"banking77": 120, "clinc150": 250, "sms_spam": 700}
"""How many texts each label has, at most."""

INTENTS = (
    *("age_limit", "apple_pay_or_google_pay", "automatic_top_up", "card_swallowed"),
    *("edit_personal_details", "getting_virtual_card", "lost_or_stolen_phone"),
    *("passcode_forgotten", "terminate_account"),
)
DOMAINS = ("auto_and_commute", "banking", "kitchen_and_dining", "small_talk", "travel", "work")
UNFIT = re.compile(
    r"sex|xxx|fuck|shit|horny|porn|dick|cock|bitch|naked|dating|\|\||\t", re.IGNORECASE
)
"""What does not belong in a wheel, and what would break the form of a line."""

Row = tuple[str, str]


def banking77(folder: Path) -> Iterator[Row]:
    with (folder / "train.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["category"] in INTENTS:
                yield row["category"], row["text"]


def clinc150(folder: Path) -> Iterator[Row]:
    domains = json.loads((folder / "domains.json").read_text("utf-8"))
    domain_of = {intent: name for name in DOMAINS for intent in domains[name]}
    rows = json.loads((folder / "data_full.json").read_text("utf-8"))["train"]
    # Intents come one after the other: every intent of a domain should have its share.
    by_turns = sorted(range(len(rows)), key=lambda number: (number % 100, number))
    for text, intent in (rows[number] for number in by_turns):
        if intent in domain_of:
            yield domain_of[intent], text


def sms_spam(folder: Path) -> Iterator[Row]:
    lines = (folder / "SMSSpamCollection").read_text("utf-8").splitlines()
    for label, _, text in (line.partition("\t") for line in lines):
        yield label, text


def chosen(rows: Iterable[Row], most: int) -> list[Row]:
    """Return the first fitting texts of each label, without duplicates, in order of the labels."""
    texts: dict[str, list[str]] = {}
    seen: set[str] = set()
    for label, text in rows:
        line = " ".join(text.split())
        known = texts.setdefault(label.replace("_", " "), [])
        fits = FEWEST_CHARS <= len(line) <= MAX_CHARS and line.isascii() and line.isprintable()
        if fits and not UNFIT.search(line) and line.lower() not in seen and len(known) < most:
            seen.add(line.lower())
            known.append(line)
    return [(label, text) for label in sorted(texts) for text in texts[label]]


def main() -> None:
    for read in (banking77, clinc150, sms_spam):
        rows = chosen(read(Path(sys.argv[1]) / read.__name__), A_LABEL[read.__name__])
        target = TARGET / f"{read.__name__}.tsv"
        target.write_text("".join(f"{label}\t{text}\n" for label, text in rows), "utf-8")
        print(f"{target.name}: {len(rows):,} texts, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
