"""Show a whole run, cell by cell. The model's replies are scripted; everything else is real."""

from rlm import RLM, ScriptedClient
from rlm.events import CallEnded, CellOutput, CellStarted, RunEnded, StepStarted

REVIEWS = ["Lovely, fits well.", "Broke after a day.", "Good value.", "Arrived late and torn."]

LOOK = """First I look at what there is.
```repl
print(type(context).__name__, len(context))
```"""
LABEL = """Now I ask about every review.
```repl
labels = llm_query_batched([f"Good or bad? {review}" for review in context])
print(labels)
```"""
COUNT = """```repl
FINAL(f"{labels.count('bad')} of {len(labels)} reviews are bad")
```"""


def main() -> None:
    model = ScriptedClient([LOOK, LABEL, COUNT])
    sub_model = ScriptedClient(rules=[("Broke", "bad"), ("torn", "bad"), ("", "good")])
    with RLM(model, sub_model=sub_model) as rlm:
        result = rlm.ask("How many reviews are bad?", REVIEWS)
    for event in result.events:
        if isinstance(event, StepStarted):
            print(f"step {event.step}")
        elif isinstance(event, CellStarted):
            print("  code   |", event.code.replace("\n", "\n         | "))
        elif isinstance(event, CallEnded):
            print("  call   |", event.reply)
        elif isinstance(event, CellOutput):
            print("  output |", event.text.strip())
        elif isinstance(event, RunEnded):
            print("answer:", event.answer)


if __name__ == "__main__":
    main()

# prints: step 1
# prints: output | list 4
# prints: step 2
# prints: call   | good
# prints: output | ['good', 'bad', 'good', 'bad']
# prints: answer: 2 of 4 reviews are bad
