"""What is logged while a command runs: told by the command itself, when there is room for it."""

import logging
from pathlib import Path

__all__ = ["Complaints"]

JOURNAL = "journal"
MOST_TEXTS = 20


class Complaints(logging.Handler):
    """What journals could not keep; whatever else is logged, commands tell in their own words.

    While it listens, nothing is logged to the terminal by itself.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        is_news = len(self.texts) < MOST_TEXTS and text not in self.texts
        if is_news and Path(record.pathname).parent.name == JOURNAL:
            self.texts.append(text)

    def listen(self) -> None:
        logging.getLogger("rlm").addHandler(self)

    def close(self) -> None:
        logging.getLogger("rlm").removeHandler(self)
        super().close()
