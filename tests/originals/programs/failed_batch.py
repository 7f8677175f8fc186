"""A failed item of a batch is a text in its place; the others are there."""

import json
import os

from rlm import RLM

SCRIPT = [
    "```repl\nparts = llm_query_batched(['p', 'q'])\nprint(len(parts))\n```",
    "fine",
    {"status": 400, "error": "no luck"},
    (
        '```repl\nanswer["content"] = repr(sorted(part[:27] for part in parts))\n'
        'answer["ready"] = True\n```'
    ),
]

rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
)
print(json.dumps({"response": rlm.completion("x").response}))
