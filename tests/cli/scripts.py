"""What fake models answer: functions for tests.endpoint.endpoint, by what a request says."""

import itertools
from typing import Any

from tests.endpoint import Answer

HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x1b[31m[bold]x[/bold][link=http://e]y[/link]\x9b\u202e\rend"
AS_CODE = ascii(HOSTILE)


def submits(code: str) -> Answer:
    """Every step is this one cell."""

    def answer(_: dict[str, Any]) -> str:
        return f"```repl\n{code}\n```"

    return answer


def never_ends() -> Answer:
    """Every step finds something new and goes on."""
    numbers = itertools.count(1)

    def answer(_: dict[str, Any]) -> str:
        return f"```repl\nresult = 'found so far: {next(numbers)}'\nprint(result)\n```"

    return answer
