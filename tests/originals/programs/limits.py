"""The ends of runs: used-up iterations return an answer, other limits raise named errors."""

import json
import os

from rlm import RLM, ErrorThresholdExceededError, TokenLimitExceededError
from rlm.utils.exceptions import TimeoutExceededError

SCRIPT = [
    "```repl\nprint(1)\n```",
    "It is 7.",
    "```repl\nboom()\n```",
    "```repl\nboom()\n```",
    *["```repl\nprint('more')\n```"] * 9,
]
BACKEND = {
    "backend": "openai",
    "backend_kwargs": {"model_name": "gpt-4o", "base_url": os.environ["OPENAI_BASE_URL"]},
}
told = {"steps": RLM(**BACKEND, max_iterations=1).completion("x").response}
try:
    RLM(**BACKEND, max_errors=2).completion("x")
except ErrorThresholdExceededError as error:
    told["errors"] = [error.error_count, error.threshold]
try:
    RLM(**BACKEND, max_tokens=10).completion("x")
except TokenLimitExceededError as error:
    told["tokens"] = error.token_limit
try:
    RLM(**BACKEND, max_timeout=0.000001).completion("x")
except TimeoutExceededError as error:
    told["timeout"] = error.timeout
print(json.dumps(told))
