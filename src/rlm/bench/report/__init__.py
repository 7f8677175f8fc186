"""A report of benchmarks: markdown, and for each task a picture of scores and one of costs."""

from rlm.bench.report.writing import write_report

__all__ = ["write_report"]
