"""A report of benchmarks in Markdown, with a chart of scores and one of costs per task."""

from rlm.bench.report.writing import write_report

__all__ = ["write_report"]
