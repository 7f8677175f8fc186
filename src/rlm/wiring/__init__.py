"""The runner of runs, the resources of one `RLM`, and the registry of names and plugins."""

__all__: list[str] = []
