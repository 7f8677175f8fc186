"""Data that stays on the host."""

__all__: list[str] = []
