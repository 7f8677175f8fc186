"""A longer system prompt, sampling, and the options of the client."""

import json
import os

from rlm import RLM
from rlm.utils.prompts import RLM_SYSTEM_PROMPT

SCRIPT = [
    "```repl\nreply = llm_query('x')\nprint(reply)\n```",
    "yes",
    '```repl\nanswer["content"] = reply\nanswer["ready"] = True\n```',
]

rlm = RLM(
    backend="openai",
    backend_kwargs={
        "model_name": "gpt-4o",
        "base_url": os.environ["OPENAI_BASE_URL"],
        "timeout": 30.0,
        "max_retries": 1,
        "default_headers": {"X-Team": "reading"},
        "default_query": {"tenant": "7"},
        "organization": "org-1",
        "sampling_args": {"extra_body": {"vendor": 1}, "top_p": 0.5},
    },
    sampling_args={"temperature": 0.0},
    custom_system_prompt=RLM_SYSTEM_PROMPT + '\nReply as {{"content": "…"}}.',
    user_prologue="Be brief.",
    orchestrator=False,
)
print(json.dumps({"response": rlm.completion("x", "What?").response}))
