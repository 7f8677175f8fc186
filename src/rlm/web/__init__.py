"""What the HTTP faces share: host and origin checks, tokens, event streams, error bodies."""

__all__: list[str] = []
