"""What one `RLM` object keeps between runs, and the registry of providers and environments."""

__all__: list[str] = []
