"""The one path to a model: recall, reserve, schedule, send, commit, settle. Read `calls` first."""

__all__: list[str] = []
