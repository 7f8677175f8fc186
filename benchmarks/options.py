"""Options that several benchmarks share."""

import argparse
from collections.abc import Callable, Collection

__all__ = ["among"]


def among(known: Collection[str]) -> Callable[[str], list[str]]:
    """Parse names separated by commas, in the order of the known names."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}"
            )
        return [each for each in known if each in names]

    return parse
