"""`python -m rlm`."""

from rlm.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
