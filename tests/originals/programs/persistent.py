"""Several turns over one REPL: variables, contexts and histories stay."""

import json
import os

from rlm import RLM

SCRIPT = [
    (
        '```repl\nwords = len(context.split())\nanswer["content"] = str(words)\n'
        'answer["ready"] = True\n```'
    ),
    "```repl\nprint(words, context_0, '|', context_1, len(history) > 0)\n```",
    (
        '```repl\nanswer["content"] = f"{words} then {len(context_1.split())}"\n'
        'answer["ready"] = True\n```'
    ),
    '```repl\nanswer["content"] = f"{words} {context_2}"\nanswer["ready"] = True\n```',
]

with RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
    persistent=True,
) as rlm:
    turns = [
        rlm.completion("three small words", root_prompt="How many words?").response,
        rlm.completion("two words", root_prompt="And now?").response,
        rlm.completion("end", root_prompt="All?").response,
    ]
print(json.dumps({"turns": turns, "persistent": rlm.persistent}))
