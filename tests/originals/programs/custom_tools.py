"""Functions, described functions and values for cells."""

import json
import os

from rlm import RLM

SCRIPT = [
    "```repl\nprint(add(2, 3), area(width=2, height=4), RATE, sorted(TABLE))\n```",
    '```repl\nanswer["content"] = str(area(width=3, height=3))\nanswer["ready"] = True\n```',
]


def add(a: int, b: int) -> int:
    return a + b


def area(width: float, height: float) -> float:
    return width * height


rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
    custom_tools={
        "add": add,
        "area": {"tool": area, "description": "the area of a rectangle"},
        "RATE": 0.25,
        "TABLE": {"tool": {"b": 1, "a": 2}, "description": "two letters"},
    },
    custom_sub_tools={},
)
done = rlm.completion("Compute an area.")
try:
    bad = RLM(
        backend="openai",
        backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
        custom_tools={"llm_query": add},
    )
    bad.completion("x")
    refused = None
except ValueError as error:
    refused = "llm_query" in str(error)
print(json.dumps({"response": done.response, "refused": refused}))
