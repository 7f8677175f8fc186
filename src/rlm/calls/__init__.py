"""The one path to a model: reserve, look up, schedule, send, commit, settle. Read `calls` first."""

__all__: list[str] = []
