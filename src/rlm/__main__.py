"""`rlm` and `python -m rlm`."""

import os
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line; Ctrl-C while it is being imported ends it without a traceback."""
    try:
        from rlm.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("Cancelled.\n")
        sys.stderr.flush()
        os._exit(130)  # What was being imported may be in no state to be finalized.
    run()


if __name__ == "__main__":
    main()
