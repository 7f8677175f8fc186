"""Where model-written code runs. Each environment opens sessions; all use the same worker."""

__all__: list[str] = []
