"""Check the model's batches on a device, and measure how fast they are, with random weights.

    python -m benchmarks.real_model.speed --device cuda

Needs torch only. First, replies that were computed in a batch must be those computed alone; then a
model with the shape of Qwen2.5 1.5B reads and writes in batches of several sizes.
"""

import argparse
import importlib
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.real_model.batching import Batcher, Generation, computed
from benchmarks.real_model.qwen2 import Qwen2, Shape

SMALL = Shape(4, 8, 2, 256, 512, 1e4, 1e-6)
LARGE = Shape(28, 12, 2, 1_536, 32_768, 1e6, 1e-6)
LOADS = ((64, 1_000, 100), (64, 4_000, 60), (16, 24_000, 20), (200, 1_000, 60))
"""How many requests, tokens of each prompt, and tokens of each reply."""


def random_weights(shape: Shape, inner: int, vocabulary: int, scale: float) -> dict[str, Any]:
    """Return arrays as a GGUF file would hold them."""
    numpy: Any = importlib.import_module("numpy")
    dice = numpy.random.default_rng(0)

    def drawn(*size: int) -> Any:
        return dice.standard_normal(size, dtype=numpy.float32) * scale

    width, narrow = shape.width, shape.kv_heads * shape.head_width
    sizes = {
        "attn_q": (width, width),
        "attn_k": (narrow, width),
        "attn_v": (narrow, width),
        "attn_output": (width, width),
        "ffn_down": (width, inner),
        "ffn_gate": (inner, width),
        "ffn_up": (inner, width),
    }
    weights = {
        "token_embd.weight": drawn(vocabulary, width),
        "output_norm.weight": numpy.ones(width, numpy.float32),
    }
    for layer in range(shape.layers):
        for name, size in sizes.items():
            weights[f"blk.{layer}.{name}.weight"] = drawn(*size)
        for name in ("attn_q", "attn_k", "attn_v"):
            weights[f"blk.{layer}.{name}.bias"] = drawn(sizes[name][0])
        for name in ("attn_norm", "ffn_norm"):
            weights[f"blk.{layer}.{name}.weight"] = numpy.ones(width, numpy.float32)
    return weights


def replies(
    model: Qwen2, prompts: Sequence[list[int]], max_tokens: int, slots: int, step_tokens: int
) -> tuple[list[list[int]], int]:
    """Return the replies to all prompts, and the number of steps they took."""
    batcher = Batcher(
        slots=slots, window_tokens=model.shape.window_tokens, ends=(), step_tokens=step_tokens
    )
    every = [Generation(list(prompt), max_tokens) for prompt in prompts]
    for generation in every:
        batcher.add(generation)
    steps = 0
    while step := batcher.plan():
        batcher.finish(step, computed(model, step))
        steps += 1
    return [generation.produced for generation in every], steps


def agreement(device: str) -> float:
    """Return the share of tokens that are the same in a batch and alone."""
    model = Qwen2(SMALL, random_weights(SMALL, 512, 1_000, 0.1), slots=5, device=device)
    prompts = [_prompt(count, 1_000) for count in (3, 40, 200, 17, 90, 333, 5, 60)]
    together, _ = replies(model, prompts, 20, slots=5, step_tokens=64)
    alone = [replies(model, [prompt], 20, slots=1, step_tokens=512)[0][0] for prompt in prompts]
    same = total = 0
    for one, other in zip(together, alone, strict=True):
        same += sum(a == b for a, b in zip(one, other, strict=True))
        total += len(one)
    return same / total


def _prompt(count: int, vocabulary: int) -> list[int]:
    return [(count * 7_919 + place * 104_729) % vocabulary for place in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--slots", type=int, default=64)
    options = parser.parse_args()
    print(f"the same tokens in a batch and alone: {agreement(options.device):.1%}", flush=True)
    weights = random_weights(LARGE, 8_960, 151_936, 0.02)
    model = Qwen2(LARGE, weights, slots=options.slots, device=options.device)
    for count, length, max_tokens in LOADS:
        prompts = [_prompt(length + number, 151_936)[:length] for number in range(count)]
        began = time.monotonic()
        _, steps = replies(model, prompts, max_tokens, options.slots, 4_096)
        seconds = time.monotonic() - began
        rates = (count / seconds, count * length / seconds, count * max_tokens / seconds)
        told = "{:,.1f} requests, {:,.0f} tokens read and {:,.0f} written a second".format(*rates)
        print(f"{count} x {length:,} -> {max_tokens}: {seconds:.1f} s, {told}, {steps} steps")


if __name__ == "__main__":
    main()
