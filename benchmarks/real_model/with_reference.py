"""One trial of the reference engine, `rlms`, as installed: JSON on standard input and output.

It runs in an interpreter that has `rlms` and not rlm; both are imported under the same name.
"""

import contextlib
import importlib
import json
import sys
from typing import Any


def main() -> None:
    asked = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # whatever it prints is not the result
        told = _answered(asked)
    print(json.dumps(told))


def _answered(asked: dict[str, Any]) -> dict[str, Any]:
    reference: Any = importlib.import_module("rlm")
    limits = {"max_timeout": asked["max_seconds"], "max_tokens": asked["max_tokens"]}
    engine = reference.RLM(
        backend="openai",
        backend_kwargs={
            "model_name": asked["model"],
            "base_url": asked["url"],
            "api_key": "none",
        },
        environment="local",
        **limits,
    )
    try:
        found = engine.completion(asked["context"], root_prompt=asked["query"])
    except Exception as error:  # noqa: BLE001 - how a trial fails is its result
        is_limit = "Exceeded" in type(error).__name__
        told = f"{type(error).__name__}: {error}"[:300]
        return {
            "answer": getattr(error, "partial_answer", None),
            "status": "limit" if is_limit else "failed",
            "detail": told,
            "calls": None,
            "input_tokens": getattr(error, "tokens_used", None),  # with the output
            "output_tokens": None,
        }
    usage = found.usage_summary.model_usage_summaries.values()
    return {
        "answer": str(found.response),
        "status": "answered",
        "calls": sum(each.total_calls for each in usage),
        "input_tokens": sum(each.total_input_tokens for each in usage),
        "output_tokens": sum(each.total_output_tokens for each in usage),
    }


if __name__ == "__main__":
    main()
