"""Write your own client: anything that turns a request into a reply can be a model.

This one is a heuristic in a few lines. A real one would talk to a server or a local library.
"""

import re
from collections.abc import AsyncIterator

from rlm import RLM
from rlm.messages import ModelInfo, Reply, Request, Usage
from rlm.protocols import Client

FIND = """```repl
hits = ctx.grep({word!r})
print(hits)
if hits:
    FINAL(hits[0].partition(": ")[2])
else:
    FINAL("not found")
```"""


class LongestWordClient:
    """Searches for the longest word of the query and submits the first line that has it."""

    async def complete(self, request: Request, *, timeout_seconds: float) -> Reply:
        task = str(request.messages[1].content)
        query = task.partition("\n")[0].removeprefix("Query: ")
        text = FIND.format(word=max(re.findall(r"\w+", query), key=len))
        return Reply(text=text, usage=Usage(input_tokens=len(task) // 4, output_tokens=60))

    async def stream(
        self, request: Request, *, timeout_seconds: float
    ) -> AsyncIterator[str | Reply]:
        yield await self.complete(request, timeout_seconds=timeout_seconds)

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(window_tokens=8_000)

    async def close(self) -> None:
        """Do nothing."""


def main() -> None:
    client: Client = LongestWordClient()
    with RLM(client) as rlm:
        result = rlm.ask("Who is the harbourmaster?", "Ana is the pilot\nJo is harbourmaster\n")
    print("answer:", result.answer)
    print("usage: ", {name: usage.total_tokens for name, usage in result.usage.by_model.items()})


if __name__ == "__main__":
    main()

# prints: answer: Jo is harbourmaster
# prints: usage:  {'LongestWordClient': ...}
