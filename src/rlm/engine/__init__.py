"""The loop of a run, and everything that only the loop uses. Read `loop` first."""

__all__: list[str] = []
