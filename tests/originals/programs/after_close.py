"""`close` ends a conversation: the next turn is the first of a new one."""

import json
import os

from rlm import RLM

SCRIPT = [
    '```repl\nmine = 1\nanswer["content"] = context\nanswer["ready"] = True\n```',
    '```repl\nanswer["content"] = f"{context} {\'mine\' in dir()}"\nanswer["ready"] = True\n```',
    '```repl\nanswer["content"] = f"{context_0} {context_1}"\nanswer["ready"] = True\n```',
    '```repl\nanswer["content"] = sorted(context)\nanswer["ready"] = True\n```',
]

rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
    persistent=True,
)
told = [rlm.completion("first").response, rlm.close(), rlm.close()]
told.append(rlm.completion("second").response)
with rlm as same:
    told += [same is rlm, same.completion("third").response]
told.append(rlm.completion({"b": 1, "a": 2}).response)
rlm.close()
print(json.dumps(told))
