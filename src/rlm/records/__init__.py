"""What a run leaves behind: its journal, its trajectory, and the output of recorders."""

__all__: list[str] = []
