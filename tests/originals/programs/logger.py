"""Sub-calls, alone and in a batch, and the trajectory that a logger keeps of them."""

import json
import os
import tempfile
from pathlib import Path

from rlm import RLM
from rlm.logger import RLMLogger

SCRIPT = [
    (
        "```repl\none = llm_query('What is this? ' + context[:9])\n"
        "both = llm_query_batched(['first half', 'second half'])\nprint(one, both)\n```"
    ),
    "a note",
    "a part",
    "a part",
    "```repl\nnope\n```",
    '```repl\nanswer["content"] = one\nanswer["ready"] = True\n```',
]


def shape(value: object) -> object:
    """The keys of everything, without the texts of prompts."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in sorted(value.items()) if key != "locals"}
    return [shape(each) for each in value] if isinstance(value, list) else type(value).__name__


with tempfile.TemporaryDirectory() as folder:
    logger = RLMLogger(log_dir=folder)
    rlm = RLM(
        backend="openai",
        backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
        logger=logger,
    )
    done = rlm.completion("a shopping list: eggs", root_prompt="What is it?")
    files = len(list(Path(folder).iterdir()))
rows = done.metadata["iterations"]
results = [block["result"] for row in rows for block in row["code_blocks"]]
print(
    json.dumps(
        {
            "response": done.response,
            "run": {
                name: done.metadata["run_metadata"][name]
                for name in ("root_model", "max_depth", "max_iterations", "backend")
            },
            "run keys": sorted(done.metadata["run_metadata"]),
            "row keys": sorted(rows[0]),
            "numbers": [row["iteration"] for row in rows],
            "responses": [row["response"] for row in rows],
            "answers": [row["final_answer"] for row in rows],
            "results": shape([{**each, "rlm_calls": []} for each in results]),
            "stdout": [each["stdout"] for each in results],
            "stderr": [each["stderr"] for each in results],
            "locals": [
                {name: each["locals"].get(name) for name in ("one", "both", "context", "context_0")}
                for each in results
            ],
            "calls": [
                (call["root_model"], call["prompt"], call["response"])
                for each in results
                for call in each["rlm_calls"]
            ],
            "call keys": sorted(results[0]["rlm_calls"][0]),
            "timed": all(row["iteration_time"] > 0 for row in rows),
            "count": logger.iteration_count,
            "files": files,
        }
    )
)
