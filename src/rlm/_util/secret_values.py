"""Secrets that this process knows: values of environment variables whose names say so."""

import os
import re

__all__ = ["SHORTEST_SECRET_CHARS", "secrets_of_the_environment"]

SHORTEST_SECRET_CHARS = 8
"""A shorter value occurs in too many ordinary texts to be hidden in them."""

_NAME = re.compile(r".*(API_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL)S?$", re.IGNORECASE)


def secrets_of_the_environment() -> list[str]:
    """Return the values of variables such as `OPENAI_API_KEY`, as they are now."""
    return [value for name, value in os.environ.items() if _NAME.fullmatch(name)]
