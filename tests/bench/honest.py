"""A model that plays every part of a map/reduce from what each prompt shows.

It is perfect, not clairvoyant: as a mapper it says what its part of the text says, as a reducer
what the notes or the table before it come to. What the strategy loses on the way, it can't know.
With one exception: nobody can note down all edges of a graph, so it is told which nodes a walk
will meet.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from rlm.bench.task import Sample
from rlm.messages import Request
from tests.bench.reading import (
    HOPS,
    Line,
    answer_of,
    as_date,
    described_in,
    edges_in,
    labels_by_text,
    levels,
    named,
    needles_in,
    node_in,
    pair_groups,
    steps_in,
)

KINDS = {
    "s-niah": "find",
    "oolong": "label",
    "oolong-pairs": "pairs",
    "multihop": "find",
    "codeqa/calls": "count",
    "codeqa/raises": "find",
    "codeqa/hierarchy": "find",
    "graphwalks/bfs": "find",
    "graphwalks/parents": "list",
}
"""Return the kind of answer that a task wants, judging by its question."""

NOT_FOUND = "NOT FOUND"
WORDY = "In this part it says: "
"""Before each fact of a mapper, so that there is something to leave out when notes are many."""

VALUE = r"\d{5}|[A-Z][a-z]{2} \d\d, \d{4}"
"""A user or a date, as tables have them."""


class Honest:
    """Register the tasks and samples to be asked about; they are recognised by their queries."""

    def __init__(self, samples: Iterable[tuple[str, Sample]]) -> None:
        self._specs: dict[str, str] = {}
        self._samples: dict[str, Sample] = {}
        for spec, sample in samples:
            self._specs[sample.query], self._samples[sample.query] = spec, sample
        self.parts: Counter[str] = Counter()
        """How often it played each part."""

    def __call__(self, request: Request) -> str:
        text = str(request.messages[-1].content)
        query, below = text.removeprefix("Question: ").split("\n\n", 1)
        for sign, part in PARTS.items():
            if sign in below:
                self.parts[part] += 1
                return str(getattr(self, part)(query, below))
        raise AssertionError(f"nobody knows this part: {below[:300]}")

    def kind(self, query: str, below: str) -> str:
        spec = self._specs[query]
        return KINDS.get(spec) or KINDS[spec.partition("/")[0]]

    # -- reading a part of the text ----------------------------------------------------------

    def label(self, query: str, below: str) -> str:
        label_of, said = labels_by_text(query), []
        for line in below.partition("\nLines:\n")[2].splitlines():
            number, _, rest = line.partition("| ")
            said.append(f"{number}: {label_of.get(rest.partition('Instance: ')[2], '-')}")
        return "\n".join(said)

    def count(self, query: str, below: str) -> str:
        (name,) = set(re.findall(r"of the name `(\w+)`", query))
        part = below.partition("\nText:\n")[2]
        return str(len(re.findall(rf"(?<!def )\b{name}\(", part)))

    def enumerate(self, query: str, below: str) -> str:
        node = node_in(query)
        edges = edges_in(below.partition("\nText:\n")[2])
        return "\n".join(f"- {start}" for start, end in edges if end == node) or NOT_FOUND

    def note(self, query: str, below: str) -> str:
        part = below.partition("\nText:\n")[2]
        facts = _FACTS[self._specs[query].partition("/")[0]](self._samples[query], part)
        return "\n".join(f"{WORDY}{fact}" for fact in facts) or NOT_FOUND

    # -- putting together --------------------------------------------------------------------

    def reduce(self, query: str, below: str) -> str:
        """Where parts were not read yet, only what those can't change is an answer."""
        name, is_all = self._specs[query].partition("/")[0], "so far only" not in below
        return _SOLVED[name](query, _facts_in(below), is_all) or NOT_FOUND

    def shorten(self, query: str, below: str) -> str:
        return "\n".join(dict.fromkeys(_facts_in(below).splitlines()))

    def form(self, query: str, below: str) -> str:
        return ", ".join(below.partition("\n\n")[2].splitlines())

    def from_table(self, query: str, below: str) -> str:
        kind = self._samples[query].facts["question"]
        try:
            return str(answer_of(kind, query, lines_of_table(query, below)))
        except ValueError:  # of no line that counts there is no first, and none with the most
            return NOT_FOUND

    def groups(self, query: str, below: str) -> str:
        first, second = pair_groups(query, lines_of_table(query, below))
        return f"A: {', '.join(map(str, first))}\nB: {', '.join(map(str, second))}"


PARTS = {
    "Reply with one word": "kind",
    "\nLines:\n": "label",
    "Count in this part alone": "count",
    "one thing per line, exactly as it is written": "enumerate",
    "\nText:\n": "note",
    "A pair has one thing of group A": "groups",
    "Answer the question from these numbers alone": "from_table",
    "Give the answer in the form that the question asks for": "form",
    "Do not answer it yet": "shorten",
    "\nNotes:\n": "reduce",
}
"""Phrase of a prompt → role of its reader; the first match counts."""


# -- facts of a part, and what they imply ---------------------------------------------------------


def _needles(sample: Sample, part: str) -> list[str]:
    said = [(key, value) for key, value in needles_in(part) if key in sample.query]
    return [f"The access number for {key} is {value}." for key, value in said]


def _hops(sample: Sample, part: str) -> list[str]:
    """Sentences of the kinds that the question is about, about any person."""
    asked = [asked.partition(" (")[0] for asked in HOPS]
    said = [
        each.format(".*?")
        for word, each in zip(asked, HOPS.values(), strict=True)
        if word in sample.query
    ]
    sentences = re.split(r"(?<=\.)\s+|\n", part)
    return [each for each in sentences if any(re.fullmatch(pattern, each) for pattern in said)]


def _code(sample: Sample, part: str) -> list[str]:
    """Heads of classes, or functions among the choices that raise what is asked about."""
    if "is derived from" in sample.query:
        return re.findall(r"^class \w+(?:\(\w+\))?:$", part, re.MULTILINE)
    (error,) = re.findall(r"raises `(\w+)`", sample.query)
    found = []
    for block in part.split("\n\n"):
        head = re.search(r"^def (\w+)\(", block, re.MULTILINE)
        if head and f":{head[1]}\n" in sample.query and f"raise {error}(" in block:
            found.append(f"{head[1]} raises {error}")
    return found


def _edges(sample: Sample, part: str) -> list[str]:
    """Edges of nodes that the walk will meet before its last step."""
    query = sample.query
    met = levels(edges_in(sample.context), node_in(query), steps_in(query))[:-1]
    starts = {node for level in met for node in level}
    return [f"{start} -> {end}" for start, end in edges_in(part) if start in starts]


_FACTS = {"s-niah": _needles, "multihop": _hops, "codeqa": _code, "graphwalks": _edges}


def _facts_in(below: str) -> str:
    """Return the facts of notes without the text around them."""
    notes = below.partition("\nNotes:\n")[2]
    return re.sub(rf"^(?:\[\d+\] )?(?:{WORDY})?|\n(?=\n)", "", notes, flags=re.MULTILINE)


def _numbers(query: str, notes: str, is_all: bool) -> str:
    found = dict.fromkeys(value for _, value in needles_in(notes))
    several = re.search(r"Answer with the (\d) numbers", query)
    wanted = int(several[1]) if several else 1
    return "\n".join(found) if is_all or len(found) == wanted else ""


def _name(query: str, notes: str, is_all: bool) -> str:
    found = named(described_in(query), notes)
    return found[0] if found else ""


def _letter(query: str, notes: str, is_all: bool) -> str:
    options = dict(re.findall(r"^([A-D])\) (.*)$", query, re.MULTILINE))
    if base := re.findall(r"derived from `(\w+)`", query):
        above = dict(re.findall(r"^class (\w+)(?:\((\w+)\))?:$", notes, re.MULTILINE))
        right = [letter for letter, name in options.items() if base[0] in _ancestors(above, name)]
    else:
        raising = set(re.findall(r"^(\w+) raises ", notes, re.MULTILINE))
        right = [letter for letter, each in options.items() if each.partition(":")[2] in raising]
    return right[0] if len(right) == 1 else ""


def _ancestors(above: Mapping[str, str], name: str) -> set[str]:
    found: set[str] = set()
    while name := above.get(name, ""):
        found.add(name)
    return found


def _walked(query: str, notes: str, is_all: bool) -> str:
    """Without all edges, it is unknown which nodes are reached in fewer steps."""
    return (
        ""
        if not is_all
        else "\n".join(levels(edges_in(notes), node_in(query), steps_in(query))[-1])
    )


_SOLVED = {"s-niah": _numbers, "multihop": _name, "codeqa": _letter, "graphwalks": _walked}


def lines_of_table(query: str, below: str) -> list[Line]:
    """Every line that the table counts: its date, its user and its label."""
    labels = {label.casefold(): label for label in labels_by_text(query).values()}
    rows = (*re.split(r"\nBy \w+ and \w+:\n", below), "")[1].partition("\n\n")[0]
    found = []
    for one, others in re.findall(rf"^({VALUE}): (.*)$", rows, re.MULTILINE):
        for other, counts in re.findall(rf"({VALUE}) \(([^)]*)\)", others):
            day, user = (other, one) if one.isdigit() else (one, other)
            for label, count in re.findall(r"([^,]+?) (\d+)(?:, |$)", counts):
                found += [(as_date(day), int(user), labels[label])] * int(count)
    for label, count in Counter(label for _, _, label in found).items():
        assert f"\n{label.casefold()}: {count}\n" in below  # the tables agree
    return found
