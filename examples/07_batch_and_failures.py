"""Make a batch of calls in which some fail: order is kept, and paid replies are not lost."""

from rlm import RLM, ModelError, ScriptedClient
from rlm.events import CellOutput
from rlm.messages import Request

CELL = """```repl
replies = llm_query_batched([f"Square {n}" for n in range(10)])
for n, reply in enumerate(replies):
    if isinstance(reply, FailedReply):
        print(n, "failed:", reply.reason)
good = [int(reply) for reply in replies if not isinstance(reply, FailedReply)]
print(len(good), "of", len(replies), "answered")
try:
    llm_query("Square 13")
except CallFailed as error:
    print("a single call raises:", error)
FINAL(sum(good))
```"""


def square(request: Request) -> str | ModelError:
    number = int(str(request.messages[-1].content).split()[-1])
    if number in {3, 7, 13}:
        return ModelError(f"the number {number} is not allowed here")
    return str(number**2)


def main() -> None:
    sub_model = ScriptedClient(rules=[("Square", square)])
    with RLM(ScriptedClient([CELL]), sub_model=sub_model) as rlm:
        result = rlm.ask("What is the sum of the squares?", "")
    for event in result.events:
        if isinstance(event, CellOutput):
            print(event.text, end="")
    print("answer:", result.answer, "of", sum(n**2 for n in range(10)))


if __name__ == "__main__":
    main()

# prints: 3 failed: the number 3 is not allowed here
# prints: 7 failed: the number 7 is not allowed here
# prints: 8 of 10 answered
# prints: a single call raises: the number 13 is not allowed here
# prints: answer: 227 of 285
