"""The tasks that come with rlm, a file each."""

__all__: list[str] = []
