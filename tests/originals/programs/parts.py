"""The parts alone: a client, a REPL, and types that go to dicts and back."""

import json
import os

from rlm.clients import get_client
from rlm.clients.base_lm import BaseLM
from rlm.core.types import (
    CodeBlock,
    ModelUsageSummary,
    REPLResult,
    RLMChatCompletion,
    RLMIteration,
    UsageSummary,
)
from rlm.environments import get_environment
from rlm.environments.local_repl import LocalREPL
from rlm.utils.parsing import find_code_blocks, format_iteration

SCRIPT = ["one", "two"]

client = get_client("openai", {"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]})
said = [client.completion("x"), client.completion([{"role": "user", "content": "y"}])]
with LocalREPL(context_payload=["a", "b"]) as repl:
    first = repl.execute_code("x = len(context)\nprint(x)")
    second = repl.execute_code("x / 0")
    third = repl.execute_code("answer['content'] = [x]; answer['ready'] = True")
    values = {name: repl.locals[name] for name in ("x", "context", "context_0")}
    asked = repl.execute_code("print(llm_query('x'))").stdout
other = get_environment("local", {"context_payload": "text", "setup_code": "y = context * 2"})
doubled = other.locals["y"]
other.cleanup()
usage = UsageSummary({"m": ModelUsageSummary(1, 2, 3, 0.5)})
done = RLMChatCompletion("m", "p", "r", usage, 1.0)
step = RLMIteration("p", "r", [CodeBlock("x", REPLResult("out", "", {"n": 1}))])
print(
    json.dumps(
        {
            "said": said,
            "is BaseLM": isinstance(client, BaseLM),
            "counted": client.get_usage_summary().model_usage_summaries["gpt-4o"].total_calls,
            "repl": [first.stdout, first.stderr, second.stderr, third.final_answer, asked],
            "values": values,
            "doubled": doubled,
            "dict": done.to_dict(),
            "back": RLMChatCompletion.from_dict(done.to_dict()) == done,
            "blocks": find_code_blocks("```repl\na = 1\n```\n```python\nb\n```"),
            "messages": format_iteration(step),
            "step": step.to_dict(),
        }
    )
)
