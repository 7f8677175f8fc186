"""The tasks that come with rlm, one file each."""

__all__: list[str] = []
