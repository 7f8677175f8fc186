"""How a query is answered: the loop (read `loop` first), operators, map/reduce, one plain call."""

__all__: list[str] = []
