"""Where model-written code runs. Each environment opens sessions; all speak to the same worker."""

__all__: list[str] = []
