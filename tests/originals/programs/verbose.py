"""`verbose=True` does not change the result."""

import json
import os

from rlm import RLM

SCRIPT = ['```repl\nprint("seen")\nanswer["content"] = "x"\nanswer["ready"] = True\n```']

rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
    verbose=True,
)
print(json.dumps({"response": rlm.completion("x").response, "enabled": rlm.verbose.enabled}))
