"""`multihop`: documents about things that lead to each other; the answer is hops away.

Similar to BrowseComp: each hop is in another document, and no document has more than one of them.
There are a thousand documents, or fewer in a small context.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from rlm.bench import scoring
from rlm.bench.plan import size_chars
from rlm.bench.random_text import Dice, coined_names, sentence
from rlm.bench.task import Sample, Task

__all__ = ["Multihop"]

DOCUMENTS = 1_000
SMALLEST_DOCUMENT = 600
TRIES = 200


class Relation(NamedTuple):
    """A fact that leads from one thing to another, stated in the document of the first.

    `said` has both names; `asked` turns a description of the first into one of the second.
    """

    start: str
    end: str
    said: str
    asked: str


RELATIONS = (
    Relation("engine", "company", "{0} is built by {1}.", "the company that builds {}"),
    Relation("engine", "person", "{1} designed {0}.", "the designer of {}"),
    Relation("company", "person", "{0} was founded by {1}.", "the founder of {}"),
    Relation("company", "town", "{0} has its seat in {1}.", "the town that is the seat of {}"),
    Relation("person", "town", "{0} was born in {1}.", "the birthplace of {}"),
    Relation("person", "person", "{0} was taught by {1}.", "the teacher of {}"),
    Relation("town", "river", "{0} lies on the river {1}.", "the river that flows past {}"),
    Relation("town", "person", "The mayor of {0} is {1}.", "the mayor of {}"),
    Relation("river", "town", "The {0} has its spring near {1}.", "the town near the spring of {}"),
)
KINDS = ("engine", "company", "person", "town", "river")
ENDS = {
    "engine": (" Mark IV", " Junior", " Express"),
    "company": (" Works", " Limited", " Brothers"),
    "person": ("da Hale", "nor Voss", "ra Quill", "min Thorne", "so Brandt"),
    "town": ("mora", "ford", "stad", "wick"),
    "river": ("ana", "eth", "une"),
}


class World:
    """Things of five kinds, and where each relation leads from each of them."""

    def __init__(self, dice: Dice, documents: int) -> None:
        self.count = documents
        self.names: dict[str, list[str]] = {}
        for number, kind in enumerate(KINDS):
            count = documents // len(KINDS) + (number < documents % len(KINDS))
            self.names[kind] = coined_names(dice, count, ENDS[kind])
        self.facts: dict[tuple[str, int, Relation], int] = {}
        for relation in RELATIONS:
            starts, ends = self.names[relation.start], self.names[relation.end]
            for start in range(len(starts)):
                end = dice.below(len(ends))
                if relation.start == relation.end and end == start:
                    end = (end + 1) % len(ends)
                self.facts[relation.start, start, relation] = end

    def things(self, dice: Dice) -> list[tuple[str, int]]:
        """Return all things, in random order."""
        every = [(kind, number) for kind in KINDS for number in range(len(self.names[kind]))]
        dice.shuffle(every)
        return every

    def sayings(self, kind: str, number: int) -> list[str]:
        """Return the facts that the document of a thing states."""
        name = self.names[kind][number]
        return [
            relation.said.format(name, self.names[relation.end][self.facts[kind, number, relation]])
            for relation in RELATIONS
            if relation.start == kind
        ]

    def chain(self, dice: Dice, hops: int) -> tuple[str, str, str]:
        """Return a description with N hops, and the kind and name of what it describes.

        No thing occurs twice, so that there is no shorter path.
        """
        for _ in range(TRIES):
            kind = dice.pick(KINDS)
            place = kind, dice.below(len(self.names[kind]))
            seen, question = [place], self.names[kind][place[1]]
            for _ in range(hops):
                onward = [each for each in RELATIONS if each.start == place[0]]
                relation = dice.pick(onward)
                place = relation.end, self.facts[(*place, relation)]
                seen.append(place)
                question = relation.asked.format(question)
            if len(set(seen)) == len(seen):
                break
        return question, place[0], self.names[place[0]][place[1]]


class Multihop(Task):
    """Follow facts from document to document; the variant is the number of hops."""

    name = "multihop"
    about = "follow 2 to 4 facts across 1,000 generated documents (like BrowseComp)"
    scoring = "exact match of the name"
    smallest = 2_000
    variants: ClassVar[tuple[str, ...]] = ("2-hops", "3-hops", "4-hops")

    def __init__(self, variant: str = "2-hops") -> None:
        super().__init__(variant)

    def generate(self, seed: int, size: int) -> Sample:
        dice = Dice(self.name, self.variant, self.version, seed, size)
        chars = size_chars(size)
        world = World(dice, max(len(KINDS) * 2, min(DOCUMENTS, chars // SMALLEST_DOCUMENT)))
        question, kind, name = world.chain(dice, int(self.variant[0]))
        query = (
            f"The context is a collection of documents, each about one thing. What is the name of "
            f"{question}? Answer with the name only."
        )

        def pieces() -> Iterator[str]:
            return _documents(Dice(self.name, "text", seed, size), world, chars)

        gold = {"value": name, "among": sorted(world.names[kind])}
        return Sample(query, pieces, gold, {"documents": world.count, "hops": int(self.variant[0])})

    def score(self, answer: str, gold: Any) -> float:
        return scoring.choice(answer, gold["value"], gold["among"])

    def reference(self, gold: Any) -> str:
        return str(gold["value"])


def _documents(dice: Dice, world: World, chars: int) -> Iterator[str]:
    """Yield each thing's document: its facts among filler sentences."""
    room = chars
    things = world.things(dice)
    for number, (kind, which) in enumerate(things):
        text = _document(dice, world, kind, which, room // (len(things) - number))
        room -= len(text)
        yield text


def _document(dice: Dice, world: World, kind: str, which: int, chars: int) -> str:
    facts = world.sayings(kind, which)
    head, foot = f"=== {world.names[kind][which]} ({kind}) ===\n", "\n\n"
    room = chars - len(head) - len(foot) - sum(len(fact) + 1 for fact in facts)
    said = []
    while room > 0:
        text = sentence(dice)
        room -= len(text) + 1
        if room >= 0:
            said.append(text)
    for fact in facts:
        said.insert(dice.below(len(said) + 1), fact)
    return head + " ".join(said) + foot
