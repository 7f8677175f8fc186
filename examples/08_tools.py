"""Use your own functions as tools: the model's code calls them, they run in this program."""

from dataclasses import dataclass

from rlm import RLM, ScriptedClient
from rlm.events import CellEnded, ToolCalled


@dataclass
class Berth:
    number: int
    boat: str


BERTHS = [Berth(1, "Ada"), Berth(2, "Mira"), Berth(3, "Noor")]


def berth_of(boat: str) -> Berth:
    """Return the berth of a boat."""
    for berth in BERTHS:
        if berth.boat == boat:
            return berth
    raise LookupError(f"no boat is named {boat!r}; boats: {', '.join(b.boat for b in BERTHS)}")


SCRIPT = [
    "```repl\nprint(berth_of('mira'))\n```",  # fails, and the error says why
    """```repl
wanted = [boat for boat in context if boat != "Ada"]
FINAL({boat: berth_of(boat)["number"] + FIRST_BERTH - 1 for boat in wanted})
```""",
]


def main() -> None:
    tools = {"berth_of": berth_of, "FIRST_BERTH": 100}
    with RLM(ScriptedClient(SCRIPT), tools=tools) as rlm:
        result = rlm.ask("Where do the visitors lie?", ["Ada", "Mira", "Noor"])
    for event in result.events:
        if isinstance(event, ToolCalled):
            print(event.arguments, "→", event.error or event.result)
        elif isinstance(event, CellEnded) and event.error_type:
            print("the cell failed with", event.error_type)
    print("answer:", result.answer)


if __name__ == "__main__":
    main()

# prints: {'*': ['mira']} → berth_of failed: LookupError: no boat is named 'mira'; boats: ...
# prints: the cell failed with ToolFailed
# prints: {'*': ['Mira']} → {"number": 2, "boat": "Mira"}
# prints: {'*': ['Noor']} → {"number": 3, "boat": "Noor"}
# prints: answer: {'Mira': 101, 'Noor': 102}
