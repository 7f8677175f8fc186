"""One completion: the prompt is the task."""

import json
import os

from rlm import RLM

SCRIPT = [
    "I look first.\n```repl\nprint(type(context).__name__, len(context))\n```",
    (
        "```repl\nlines = [str(2**n) for n in range(5)]\n"
        'answer["content"] = "\\n".join(lines)\nanswer["ready"] = True\n```'
    ),
]

rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-5-nano", "base_url": os.environ["OPENAI_BASE_URL"]},
    verbose=False,
)
done = rlm.completion("Print the first 5 powers of two, each on a new line.")
usage = done.usage_summary.model_usage_summaries
print(
    json.dumps(
        {
            "response": done.response,
            "model": done.root_model,
            "prompt": done.prompt,
            "calls": {name: each.total_calls for name, each in usage.items()},
            "metadata": done.metadata,
            "error": done.error,
            "fields": sorted(done.to_dict()),
            "attributes": [
                *(rlm.backend, rlm.environment_type, rlm.depth, rlm.max_depth),
                *(rlm.max_iterations, rlm.max_budget, rlm.max_timeout, rlm.max_tokens),
                *(rlm.max_errors, rlm.persistent, rlm.compaction, rlm.orchestrator),
                *(rlm.other_backends, rlm.custom_tools, rlm.custom_sub_tools, rlm.logger),
                *(rlm.compaction_threshold_pct, rlm.user_prologue, rlm.verbose.enabled),
            ],
        }
    )
)
