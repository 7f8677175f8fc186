"""Cells choose among the models by the names that the program gave them."""

import json
import os

from rlm import RLM

SCRIPT = [
    (
        "```repl\na = llm_query('one')\nb = llm_query('two', model='small')\n"
        "c = llm_query('three', model='big')\nprint(a, b, c)\n```"
    ),
    "A",
    "B",
    "C",
    '```repl\nanswer["content"] = a + b + c\nanswer["ready"] = True\n```',
]

url = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key": "none"}
rlm = RLM(
    backend="vllm",
    backend_kwargs={"model_name": "big", **url},
    other_backends=["vllm"],
    other_backend_kwargs=[{"model_name": "small", **url}],
)
done = rlm.completion("Ask both.")
usage = done.usage_summary.model_usage_summaries
calls = {name: usage[name].total_calls for name in sorted(usage)}
print(json.dumps({"response": done.response, "calls": calls}))
