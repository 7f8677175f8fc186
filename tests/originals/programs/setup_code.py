"""Code that runs before the first cell, and a function that calls another engine."""

import json
import os

from rlm import RLM

SCRIPT = [
    "```repl\nprint(prefix, ask_other('What?'))\n```",
    '```repl\nanswer["content"] = "inner"\nanswer["ready"] = True\n```',
    '```repl\nanswer["content"] = prefix + ask_other("Again?")\nanswer["ready"] = True\n```',
    '```repl\nanswer["content"] = "inner again"\nanswer["ready"] = True\n```',
]
backend = {
    "backend": "openai",
    "backend_kwargs": {"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
}


def ask_other(question: str) -> str:
    return RLM(**backend).completion(question).response


rlm = RLM(
    **backend,
    environment_kwargs={"setup_code": "prefix = 'found: '"},
    custom_tools={"ask_other": ask_other},
)
print(json.dumps({"response": rlm.completion("Go.").response}))
