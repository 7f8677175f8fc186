"""A question about a dict, by position and by name; answers that are no texts."""

import json
import os

from rlm import RLM

SCRIPT = [
    "```repl\nfound = [n for n, each in context.items() if each['spam']]\nprint(found)\n```",
    '```repl\nanswer["content"] = len(found)\nanswer["ready"] = True\n```',
]

rlm = RLM("openai", {"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]})
mail = {"a": {"spam": True}, "b": {"spam": False}, "c": {"spam": True}}
done = rlm.completion(mail, root_prompt="How many of these are spam?")
print(json.dumps({"response": done.response, "prompt": done.prompt}))
