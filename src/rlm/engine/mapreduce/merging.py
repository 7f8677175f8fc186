"""Merge the replies about pieces in code: sums, unions, tables, pairs."""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = [
    "fields_of",
    "groups_in",
    "items_in",
    "labels_in",
    "number_in",
    "pairs_of",
    "table_of",
    "union",
]

_NUMBER = re.compile(r"(?<![\w.])-?\d{1,3}(?:,\d{3})+(?![\w,])|(?<![\w.])-?\d+(?![\w])")
_BULLET = re.compile(r"^\s*(?:[-*•–]|\(?\d{1,4}[.)])\s+")
_LABEL = re.compile(r"\W*+(\d{1,9})\s*+[:|.)\-–](.*+)")
_FIELD = re.compile(r"([A-Za-z][\w ]{0,30}?):(.*+)")
_NONE = re.compile(r"\W*(none|no|not found|zero|nothing)\b", re.IGNORECASE)
MAX_VALUES = 5_000
SHORT_CHARS = 16
Counts = dict[str, Counter[str]]
"""For each value of a field, how often each label occurs."""


def number_in(reply: str) -> int | None:
    """Return the last number in a reply, or None if it has none."""
    found = _NUMBER.findall(reply)
    if found:
        return int(found[-1].replace(",", ""))
    return 0 if _NONE.match(reply) else None


def items_in(reply: str) -> list[str]:
    """Return the items that a reply lists, one per line, without bullets and numbers."""
    lines = (_BULLET.sub("", line).strip().strip("`\"'").strip() for line in reply.splitlines())
    return [line for line in lines if line]


def union(lists: Iterable[Sequence[str]]) -> list[str]:
    """Return the distinct items in order, ignoring case and white space."""
    seen: dict[str, str] = {}
    for item in itertools.chain.from_iterable(lists):
        seen.setdefault(" ".join(item.casefold().split()).rstrip(".,;"), item)
    return list(seen.values())


def labels_in(reply: str, numbers: Collection[int]) -> dict[int, str]:
    """Return `12: label` lines as a dict, ignoring numbers that are not in `numbers`."""
    found: dict[int, str] = {}
    for line in reply.splitlines():
        match = _LABEL.match(line)
        label = "" if match is None else match[2].strip()
        if match and label and int(match[1]) in numbers:
            found.setdefault(int(match[1]), " ".join(label.strip("`\"'*. ").casefold().split()))
    return found


def fields_of(line: str) -> dict[str, str]:
    """Return the fields of a line like `Name: value || Name: value`, else an empty dict."""
    if "||" not in line:
        return {}
    first, *others = line.split("||")
    found = (_FIELD.match(part) for part in (first, *map(str.lstrip, others)))
    return {match[1]: match[2].strip() for match in found if match is not None}


def table_of(query: str, lines: Sequence[str], labels: Mapping[int, str], max_chars: int) -> str:
    """Count labels: in total, by each field that groups lines, and by all of these together.

    What the query names comes first, because the end of a table that is too long is cut.
    """
    kept = {number: label for number, label in labels.items() if label and label != "-"}
    parts = [f"Lines in total: {len(kept):,}", "By label:", _format_counts(Counter(kept.values()))]
    fields = {number: fields_of(lines[number]) for number in kept}
    by_field: dict[str, Counts] = {}
    for number, label in kept.items():
        for name, value in fields[number].items():
            by_field.setdefault(name, {}).setdefault(value, Counter())[label] += 1
    grouping = {name: values for name, values in by_field.items() if _groups_lines(values)}
    names = sorted(
        grouping,
        key=lambda name: (not _values_in_query(query, grouping[name]), len(grouping[name])),
    )
    for name in names:
        rows = [f"{value}: {_inline(counts)}" for value, counts in grouping[name].items()]
        parts += [f"\nBy {name}:", *rows]
    if len(names) > 1:
        parts += [f"\nBy {' and '.join(names)}:", *_by_all(names, query, kept, fields)]
    text = "\n".join(parts)
    return text if len(text) <= max_chars else text[:max_chars].rpartition("\n")[0] + "\n… (cut)"


def _by_all(
    names: Sequence[str],
    query: str,
    labels: Mapping[int, str],
    fields: Mapping[int, Mapping[str, str]],
) -> list[str]:
    """Return a row for each value of the first field, with the values of the other fields."""
    rows: dict[str, Counts] = {}
    for number, label in labels.items():
        first, *others = (fields[number].get(name, "-") for name in names)
        rows.setdefault(first, {}).setdefault(", ".join(others), Counter())[label] += 1
    first_named = _values_in_query(query, rows)
    return [
        f"{value}: " + "; ".join(f"{others} ({_inline(each)})" for others, each in counts.items())
        for value, counts in sorted(rows.items(), key=lambda row: row[0] not in first_named)
    ]


def _values_in_query(query: str, values: Iterable[str]) -> set[str]:
    """Return the values that occur in the query as whole words."""
    return {value for value in values if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", query)}


def _groups_lines(values: Counts) -> bool:
    """Whether values are names or dates rather than the texts of the lines."""
    lines = sum(counts.total() for counts in values.values())
    is_repeated = 2 * len(values) <= lines
    is_short = sum(map(len, values)) <= SHORT_CHARS * len(values)
    return len(values) <= MAX_VALUES and (is_repeated or is_short)


def _format_counts(counts: Counter[str]) -> str:
    return "\n".join(f"{label}: {count}" for label, count in counts.most_common())


def _inline(counts: Counter[str]) -> str:
    return ", ".join(f"{label} {count}" for label, count in counts.most_common())


def groups_in(reply: str) -> tuple[list[str], list[str]] | None:
    """Return the items of the lines `A: …` and `B: …`; None if one of them is missing."""
    found: dict[str, list[str]] = {}
    for line in reply.splitlines():
        name, colon, names = line.strip().strip("*` ").partition(":")
        if colon and name.strip().upper() in {"A", "B"}:
            items = (each.strip().strip("`\"'*.()") for each in names.split(","))
            found.setdefault(name.strip().upper(), [each for each in items if each])
    return (found["A"], found["B"]) if {"A", "B"} <= found.keys() else None


def pairs_of(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, str]]:
    """Return every unordered pair with one item of each group, once."""
    found = {tuple(sorted((one, other))) for one in first for other in second if one != other}
    return [(one, other) for one, other in sorted(found)]
