"""What a run leaves behind: its journal, its trajectory, and what recorders make of its events."""

__all__: list[str] = []
