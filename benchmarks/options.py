"""Options that several benchmarks have."""

import argparse
from collections.abc import Callable, Collection

__all__ = ["among"]


def among(known: Collection[str]) -> Callable[[str], list[str]]:
    """Names with commas between them, in the order of those that are known."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}"
            )
        return [each for each in known if each in names]

    return parse
