"""The main job in one minute: find one line in ten megabytes that no model ever reads whole.

With `RLM_MODEL=provider/model` it uses that model; without one, the built-in offline stand-in.
"""

import os
import sys

from examples.haystack import make_haystack
from rlm import RLM, Limits
from rlm.recorders import ConsoleRecorder

SIZE_BYTES = 10_000_000
OFFLINE = "offline/extractive"


def main() -> int:
    model = os.environ.get("RLM_MODEL", OFFLINE)
    haystack = make_haystack(SIZE_BYTES, seed=7)
    print(f"Context:  {len(haystack.text):,} characters")
    print(f"Question: {haystack.question}")
    print(f"Model:    {model}")
    if model == OFFLINE:
        print("          (no RLM_MODEL is set: an extractive stand-in, not a language model)")
    sys.stdout.flush()
    limits = Limits(max_depth=2, max_calls=200, max_seconds=600)
    with RLM(model, limits=limits, recorders=[ConsoleRecorder(sys.stderr)]) as rlm:
        result = rlm.ask(haystack.question, haystack.text)
    right = haystack.value in (result.answer or "")
    print(f"\nAnswer:   {result.answer}")
    print(f"          {'right' if right else 'WRONG'}: the needle says {haystack.value}")
    print(
        f"          {result.steps} steps, {result.usage.total.requests} requests, "
        f"{result.usage.total.input_tokens:,} tokens read of about {len(haystack.text) // 4:,}, "
        f"{result.seconds:.1f} s"
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
