"""A module of dspy that answers about a log far larger than any window. It needs no key, no Deno.

The model is a function here. With a real one, `dspy.configure(lm=dspy.LM("openai/gpt-5-mini"))` is
all that differs.
"""

import dspy
from dspy import lm15
from recursivelm_dspy import RecursiveLM, SandboxInterpreter

LOG = "INFO all is well\n" * 100_000 + "ERROR disk sda1 is full\n" + "INFO all is well\n" * 100_000
FOR_THE_ENGINE = """```repl
errors = [line for line in context.splitlines() if line.startswith("ERROR")]
FINAL({"first": errors[0], "count": len(errors)})
```"""
FOR_DSPY = """[[ ## reasoning ## ]]
I count the lines.

[[ ## code ## ]]
```python
SUBMIT(len(log.splitlines()))
```

[[ ## completed ## ]]"""


class FakeModel:
    """Writes the code that a model would write, for the engine's loop and for that of dspy.RLM."""

    def complete(self, request: lm15.Request) -> lm15.Response:
        asked_by_dspy = "[[ ## " in (request.messages[-1].text or "")
        return lm15.Response(
            id=None,
            model=request.model,
            message=lm15.Message.assistant(FOR_DSPY if asked_by_dspy else FOR_THE_ENGINE),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=len(str(request.messages)) // 4, output_tokens=50),
        )

    def close(self) -> None:
        """There is nothing to close."""


def main() -> None:
    lm = dspy.LM("fake/model", engine=FakeModel(), cache=False)
    dspy.configure(lm=lm, track_usage=True, interpreter_factory=SandboxInterpreter)

    module = RecursiveLM("log, question -> first: str, count: int")
    got = module(log=LOG, question="Which errors are there?")
    tokens = got.get_lm_usage()["fake/model"]["prompt_tokens"]
    print(f"{got.count} error: {got.first}")
    print(f"{len(LOG):,} characters of log, {tokens:,} tokens of input")

    counted = dspy.RLM("log -> lines: int")(log=LOG)
    print(f"dspy.RLM, in our sandbox: {counted.lines:,} lines")


if __name__ == "__main__":
    main()
