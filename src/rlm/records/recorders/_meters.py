"""The two histograms that the conventions want of whoever asks models: tokens and seconds."""

from typing import Any

from rlm.events import CallEnded, ModelReplied
from rlm.records.recorders import _genai

TOKENS = "gen_ai.client.token.usage"
SECONDS = "gen_ai.client.operation.duration"
TOKEN_BUCKETS = [4**power for power in range(14)]
SECOND_BUCKETS = [0.01 * 2**power for power in range(14)]
"""The boundaries that the conventions name: 1 to 67,108,864 tokens, 0.01 to 81.92 seconds."""


class Meters:
    """Adds up requests that were really sent; a stored reply is none."""

    def __init__(self, provider: Any, version: str | None) -> None:
        meter = provider.get_meter("rlm", version)
        self._tokens = meter.create_histogram(
            TOKENS,
            unit="{token}",
            description="Tokens of requests to models.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._seconds = meter.create_histogram(
            SECONDS,
            unit="s",
            description="Seconds that requests to models took, waits and retries included.",
            explicit_bucket_boundaries_advisory=SECOND_BUCKETS,
        )

    def add(self, event: ModelReplied | CallEnded) -> None:
        about = _genai.request(event.model)
        failed = {} if event.error is None else {_genai.ERROR_TYPE: "request_failed"}
        self._seconds.record(event.seconds, {**about, **failed})
        if event.usage is None:
            return
        for kind, number in (
            ("input", event.usage.input_tokens),
            ("output", event.usage.output_tokens),
        ):
            self._tokens.record(number, {**about, "gen_ai.token.type": kind})
