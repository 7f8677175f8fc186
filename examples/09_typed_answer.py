"""Get an answer of your own type: an answer that does not fit goes back to the model."""

from dataclasses import dataclass

from rlm import RLM, Limits, ScriptedClient


@dataclass
class Deadline:
    day: int
    month: int
    what: str


LETTER = "The lamp is to be paid by 12 May. The winch has to be oiled before 1 April."

WRONG = "```repl\nFINAL([{'day': '12 May', 'what': 'pay the lamp'}])\n```"
RIGHT = """```repl
months = {"April": 4, "May": 5}
FINAL([
    {"day": 12, "month": months["May"], "what": "pay the lamp"},
    {"day": 1, "month": months["April"], "what": "oil the winch"},
])
```"""


def main() -> None:
    model = ScriptedClient([WRONG, RIGHT])
    with RLM(model) as rlm:
        result = rlm.ask("Which deadlines are there?", LETTER, response_model=list[Deadline])
    deadlines: list[Deadline] = result.answer
    for each in sorted(deadlines, key=lambda deadline: (deadline.month, deadline.day)):
        print(f"{each.month:02}-{each.day:02} {each.what}")
    print("steps:", result.steps)
    complaint = str(model.requests[1].messages[-1].content).splitlines()[1]
    print("the model was told:", complaint)

    with RLM(ScriptedClient([WRONG]), limits=Limits(max_steps=1)) as rlm:
        result = rlm.ask("Which deadlines are there?", LETTER, response_model=list[Deadline])
    print("with one step only:", result.answer, "|", result.detail)


if __name__ == "__main__":
    main()

# prints: 04-01 oil the winch
# prints: 05-12 pay the lamp
# prints: steps: 2
# prints: the model was told: Your answer does not have the right shape: ...
# prints: with one step only: None | no steps left ... the answer has the wrong shape: ...
