"""Start child runs from a cell: each has its own REPL, its own history and its own steps.

The root counts nothing itself. It passes each ward's list to a child and adds up their answers.
"""

from rlm import RLM, Limits, ScriptedClient
from rlm.events import CellStarted, RunEnded, RunStarted

WARDS = {
    "north": "Ama 4 trees\nLuis 7 trees\n",
    "south": "Noor 12 trees\nIvo 1 trees\nKei 5 trees\n",
}

ROOT = """```repl
counts = rlm_query_batched(
    [f"How many trees does the ward {ward} have?" for ward in context],
    contexts=list(context.values()),
)
FINAL(sum(int(count) for count in counts))
```"""
CHILD_LOOKS = """```repl
numbers = [int(line.split()[1]) for line in context.splitlines()]
print(numbers)
```"""
CHILD_ANSWERS = """```repl
FINAL(sum(numbers))
```"""


def main() -> None:
    model = ScriptedClient([ROOT])
    # The sub-model replies to a child's steps; its reply depends on the history so far.
    sub_model = ScriptedClient(rules=[("print(numbers)", CHILD_ANSWERS), ("", CHILD_LOOKS)])
    with RLM(model, sub_model=sub_model, limits=Limits(max_depth=2)) as rlm:
        result = rlm.ask("How many trees are there?", WARDS)
    for event in result.events:
        indent = "    " * event.depth
        if isinstance(event, RunStarted):
            print(f"{indent}run at depth {event.depth}: {event.query}")
        elif isinstance(event, CellStarted):
            print(f"{indent}  step {event.step}: {event.code.splitlines()[0]} ...")
        elif isinstance(event, RunEnded):
            print(f"{indent}ended with {event.answer} after step {event.steps}")
    print("requests by depth:", {d: u.requests for d, u in result.usage.by_depth.items()})


if __name__ == "__main__":
    main()

# prints: run at depth 0: How many trees are there?
# prints: run at depth 1: ...
# prints: ended with 29 after step 1
# prints: requests by depth: {0: 1, 1: 4}
