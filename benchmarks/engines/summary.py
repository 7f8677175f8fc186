"""From samples to figures: medians, and numbers with as many digits as they deserve."""

import statistics
from typing import Any

__all__ = ["median_of", "told_number"]


def median_of(found: dict[str, Any], group: str, engine: str, metric: str) -> float | None:
    """In seconds, bytes or counts; None if there is no sample."""
    told = found["groups"].get(group, {}).get("engines", {}).get(engine, {})
    samples = told.get("metrics", {}).get(metric)
    return statistics.median(samples) if samples else None


def told_number(value: float) -> str:
    """Three digits, more only before the point."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
