"""Ask a first question without a key: a search in place of a model finds the passages.

`offline/extractive` is no language model, and answers nothing. The loop around it is the real one.
"""

from rlm import RLM

MINUTES = """\
Minutes of the harbour board, 3 March 2031. Seven members were present.

The lamp of the lighthouse was replaced by the firm Osei and Sons.

The access code for the tide gate is 4471902.

The ferry to the island leaves at 07:40, and at noon in winter.
"""


def main() -> None:
    with RLM("offline/extractive") as rlm:
        result = rlm.ask("What is the access code for the tide gate?", MINUTES)
    for citation in result.citations:
        print(f"{citation.label}: {citation.text}")
    print("ended: ", result.stop_reason, "after", result.steps, "steps")


if __name__ == "__main__":
    main()

# prints: line 5: The access code for the tide gate is 4471902.
# prints: ended:  passages after 2 steps
