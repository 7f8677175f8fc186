"""Convert samples to figures: medians, and numbers with three significant digits."""

import statistics
from typing import Any

__all__ = ["format_number", "median_of"]


def median_of(found: dict[str, Any], group: str, engine: str, metric: str) -> float | None:
    """Return the median in seconds, bytes or counts; None without samples."""
    reported = found["groups"].get(group, {}).get("engines", {}).get(engine, {})
    samples = reported.get("metrics", {}).get(metric)
    return statistics.median(samples) if samples else None


def format_number(value: float) -> str:
    """Format a number with three digits, or more before the point."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
