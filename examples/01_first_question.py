"""Ask a first question without a key: the offline model quotes the sentence that answers.

The offline model is not a language model; it finds passages. The loop around it is the real one.
"""

from rlm import RLM

MINUTES = """\
Minutes of the harbour board, 3 March 2031. Seven members were present.
The lamp of the lighthouse was replaced by the firm Osei and Sons.
The access code for the tide gate is 4471902.
The ferry to the island leaves at 07:40, and at noon in winter.
The next meeting is on 12 May.
"""


def main() -> None:
    with RLM("offline/extractive") as rlm:
        result = rlm.ask("What is the access code for the tide gate?", MINUTES)
    print("answer:", result.answer)
    print("ended: ", result.stop_reason, "after", result.steps, "steps")


if __name__ == "__main__":
    main()

# prints: answer: The access code for the tide gate is 4471902.
# prints: ended:  answer after 2 steps
