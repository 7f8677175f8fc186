"""A history that is summarised again and again, and an answer all the same."""

import json
import os

from rlm import RLM

SCRIPT = [
    {"when": "/(Summarize your progress|about to be shortened)/", "reply": "So far: nothing."},
    *(f"```repl\nfound = {n} + len(context)\nprint('x' * 3000)\n```" for n in range(12)),
    '```repl\nanswer["content"] = str(found)\nanswer["ready"] = True\n```',
]

rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
    compaction=True,
    compaction_threshold_pct=0.02,
)
done = rlm.completion("Find it.")
print(json.dumps({"response": done.response, "pct": rlm.compaction_threshold_pct}))
