"""The error of a document that cannot be converted although nothing is wrong with the reader."""

__all__ = ["Refused"]


class Refused(Exception):
    """A document that cannot be converted; the message is a clause that says what to do."""
