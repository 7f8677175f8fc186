"""Files and folders that may be hostile: walked the way git sees them, opened, and decoded."""

__all__: list[str] = []
