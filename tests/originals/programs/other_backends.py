"""A smaller model for the calls of cells, and a budget on servers without prices."""

import json
import os

from rlm import RLM

URL = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key": "none"}
SCRIPT = [
    "```repl\na = llm_query('one')\nb = llm_query('two')\nprint(a, b)\n```",
    "A",
    "B",
    '```repl\nanswer["content"] = a + b\nanswer["ready"] = True\n```',
]

rlm = RLM(
    backend="vllm",
    backend_kwargs={"model_name": "big", **URL},
    other_backends=["vllm"],
    other_backend_kwargs=[{"model_name": "small", **URL}],
    max_budget=5.0,
)
done = rlm.completion("Ask both.")
usage = done.usage_summary.model_usage_summaries
print(
    json.dumps(
        {
            "response": done.response,
            "calls": {name: usage[name].total_calls for name in sorted(usage)},
        }
    )
)
