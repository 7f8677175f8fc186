"""Metrics for Prometheus, in the server's own registry."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from rlm.events import RunEnded

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800)


class Metrics:
    """Counters and histograms; the number of runs in progress is read on each scrape."""

    def __init__(self, running: Callable[[], int], queued: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "rlm_requests_total",
            "Requests that were answered.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            "rlm_request_seconds",
            "How long requests took, streams to their end.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self._runs = Counter(
            "rlm_runs_total", "Runs by how they ended.", ["route", "ending"], registry=registry
        )
        self._run_seconds = Histogram(
            "rlm_run_seconds",
            "How long runs took, without waiting.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self._tokens = Counter(
            "rlm_tokens_total",
            "Tokens sent to models and received from them.",
            ["kind"],
            registry=registry,
        )
        self._cost = Counter(
            "rlm_cost_usd_total", "US dollars, as far as prices are known.", registry=registry
        )
        self._steps = Counter("rlm_steps_total", "Steps of root runs.", registry=registry)
        in_flight = Gauge("rlm_runs_in_flight", "Runs in progress.", registry=registry)
        in_flight.set_function(running)
        waiting = Gauge("rlm_requests_queued", "Requests that wait for a slot.", registry=registry)
        waiting.set_function(queued)

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def run_ended(self, route: str, ended: RunEnded | None, seconds: float) -> None:
        ending = "error" if ended is None else ended.stop_reason
        self._runs.labels(route, ending).inc()
        self._run_seconds.labels(route).observe(seconds)
        if ended is not None:
            self._tokens.labels("input").inc(ended.usage.input_tokens)
            self._tokens.labels("output").inc(ended.usage.output_tokens)
            self._cost.inc(ended.usage.cost_usd or 0.0)
            self._steps.inc(ended.steps)

    def text(self) -> bytes:
        return generate_latest(self._registry)
