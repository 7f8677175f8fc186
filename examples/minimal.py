"""rlm-runtime's first example: a scripted model looks at a text and asks another about it."""

from rlm_runtime import RLM, Context
from rlm_runtime.adapters import FakeAdapter


def main() -> None:
    adapter = FakeAdapter(
        script=[
            "summary = llm_query(f'Summarize: {peek(80)}')\nanswer = summary",
            "FINAL_VAR: answer",
        ]
    )
    adapter.add_rule("You are a sub-LLM", "fake summary")
    context = Context.from_text("RLMs treat long prompts as environment state.")
    output, _ = RLM(adapter=adapter).run("Summarize.", context)
    print(output)


if __name__ == "__main__":
    main()
