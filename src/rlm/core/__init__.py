"""Import paths of the reference engine, for programs that use them; nothing of ours does."""

__all__: list[str] = []
