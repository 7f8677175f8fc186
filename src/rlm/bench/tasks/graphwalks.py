"""`graphwalks`: a graph as a long list of edges; find nodes at a distance, or parents of one.

Modelled on GraphWalks. Edges are two arrays of numbers, and a node's name is computed from its
number, so that a million edges take eight megabytes.
"""

import re
from array import array
from collections.abc import Callable, Iterator
from math import gcd
from typing import Any, ClassVar

from rlm.bench import scoring
from rlm.bench.plan import size_chars
from rlm.bench.random_text import ADJECTIVES, NOUNS, Dice
from rlm.bench.task import Sample, Task

__all__ = ["Graphwalks"]

EDGES_A_NODE = 3
NAMES = len(ADJECTIVES) * len(NOUNS) * 1_000
EDGE_CHARS = 38
STEPS = (2, 3)
TRIES = 200
NODE = re.compile(r"\b[a-z]+-[a-z]+-\d{1,3}\b")


class Graph:
    """Random edges without loops; every sample has its own names of nodes."""

    def __init__(self, dice: Dice, chars: int) -> None:
        self.nodes = max(8, chars // EDGE_CHARS // EDGES_A_NODE)
        self._offset = dice.below(NAMES)
        self._factor = dice.between(1, NAMES - 1)
        while gcd(self._factor, NAMES) != 1:
            self._factor += 1
        self.starts, self.ends = array("I"), array("I")
        written = 0
        while True:
            start = dice.below(self.nodes)
            end = (start + 1 + dice.below(self.nodes - 1)) % self.nodes
            written += len(self._line(start, end))
            if written > chars:
                return
            self.starts.append(start)
            self.ends.append(end)

    def name(self, node: int) -> str:
        """Return the unique name of a node: the factor is coprime to the number of names."""
        place, number = divmod((node * self._factor + self._offset) % NAMES, 1_000)
        first, second = divmod(place, len(NOUNS))
        return f"{ADJECTIVES[first]}-{NOUNS[second]}-{number}"

    def pieces(self) -> Iterator[str]:
        for start, end in zip(self.starts, self.ends, strict=True):
            yield self._line(start, end)

    def parents(self, node: int) -> set[int]:
        ends = zip(self.starts, self.ends, strict=True)
        return {start for start, end in ends if end == node}

    def at_distance(self, node: int, steps: int) -> set[int]:
        """Return nodes whose shortest path from here has exactly N edges."""
        seen, frontier = {node}, {node}
        for _ in range(steps):
            reached = {
                end for start, end in zip(self.starts, self.ends, strict=True) if start in frontier
            }
            frontier = reached - seen
            seen |= frontier
        return frontier

    def _line(self, start: int, end: int) -> str:
        return f"{self.name(start)} -> {self.name(end)}\n"


class Graphwalks(Task):
    """Walk a graph that is given as its edges."""

    name = "graphwalks"
    about = "breadth-first search and parents over a long list of edges (GraphWalks)"
    scoring = "F1 over the set of nodes"
    variants: ClassVar[tuple[str, ...]] = ("bfs", "parents")

    def __init__(self, variant: str = "bfs") -> None:
        super().__init__(variant)

    def generate(self, seed: int, size: int) -> Sample:
        dice = Dice(self.name, self.variant, self.version, seed, size)
        graph = Graph(dice, size_chars(size))
        if self.variant == "parents":
            node, found = _with_some(dice, graph, graph.parents)
            asked = f"which nodes have an edge that leads directly to {graph.name(node)}?"
        else:
            steps = STEPS[seed % len(STEPS)]
            node, found = _with_some(dice, graph, lambda each: graph.at_distance(each, steps))
            asked = (
                f"which nodes are exactly {steps} steps away from {graph.name(node)}? Edges are "
                f"followed from left to right, and a node that can be reached in fewer steps than "
                f"{steps} does not count."
            )
        query = (
            f"Each line of the context is a directed edge of a graph, as `from -> to`. In this "
            f"graph, {asked} Answer with the names of the nodes only, one a line."
        )
        gold = sorted(graph.name(each) for each in found)
        facts = {"edges": len(graph.starts), "nodes": graph.nodes, "found": len(gold)}
        return Sample(query, graph.pieces, gold, facts)

    def score(self, answer: str, gold: Any) -> float:
        return scoring.f1(scoring.all_names(answer.lower(), NODE), set(gold))

    def reference(self, gold: Any) -> str:
        return "\n".join(gold)


def _with_some(dice: Dice, graph: Graph, find: Callable[[int], set[int]]) -> tuple[int, set[int]]:
    """Return a node with a nonempty answer, and that answer."""
    for _ in range(TRIES):
        node = dice.pick(graph.starts)
        if found := find(node):
            return node, found
    end = graph.ends[0]  # it has parents, and they have children
    return (end, found) if (found := find(end)) else (graph.starts[0], find(graph.starts[0]))
