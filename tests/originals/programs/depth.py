"""Child runs with a REPL of their own, reported to callbacks, inside the calls of the log."""

import json
import os

from rlm import RLM
from rlm.logger import RLMLogger

SCRIPT = [
    (
        "```repl\nlow = rlm_query('Add up: 1 2 3')\nplain = llm_query('Say hello')\n"
        "print(low, plain)\n```"
    ),
    (
        '```repl\ntotal = sum(int(n) for n in context.split(":")[1].split())\n'
        'answer["content"] = str(total)\nanswer["ready"] = True\n```'
    ),
    "hello",
    '```repl\nanswer["content"] = f"{low} {plain}"\nanswer["ready"] = True\n```',
]

told = []
rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
    max_depth=2,
    logger=RLMLogger(),
    on_subcall_start=lambda depth, model, preview: told.append(["start", depth, model, preview]),
    on_subcall_complete=lambda depth, model, seconds, error: told.append(["end", depth, error]),
)
done = rlm.completion("Two errands.", root_prompt="Do both.")
calls = done.metadata["iterations"][0]["code_blocks"][0]["result"]["rlm_calls"]
child = calls[0]["metadata"]
print(
    json.dumps(
        {
            "response": done.response,
            "told": told,
            "calls": [(call["prompt"], call["response"]) for call in calls],
            "child": [row["final_answer"] for row in child["iterations"]],
            "child model": child["run_metadata"]["root_model"],
            "plain": "metadata" in calls[1],
        }
    )
)
