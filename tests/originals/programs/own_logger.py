"""A logger that a program extends, and one completion on the screen."""

import json
import os

from rlm import RLM
from rlm.core.types import RLMIteration, RLMMetadata
from rlm.logger import RLMLogger

SCRIPT = [
    "```repl\nprint('seen')\n```",
    '```repl\nanswer["content"] = "done"\nanswer["ready"] = True\n```',
]


class Telling(RLMLogger):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def log_metadata(self, metadata: RLMMetadata) -> None:
        self.told.append(metadata.backend)
        super().log_metadata(metadata)

    def log(self, iteration: RLMIteration) -> None:
        self.told.append([block.result.stdout for block in iteration.code_blocks])
        super().log(iteration)


logger = Telling()
rlm = RLM(
    backend="openai",
    backend_kwargs={"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
    logger=logger,
)
done = rlm.completion("x")
rows = logger.get_trajectory()["iterations"]
print(
    json.dumps(
        {
            "response": done.response,
            "told": logger.told,
            "rows": [(row["iteration"], row["final_answer"]) for row in rows],
        }
    )
)
