"""A model that answers the prompts of operators as a careful reader would, and counts them."""

import re
from collections.abc import Callable
from typing import Literal

from rlm.messages import Request
from rlm.testing import ScriptedClient

__all__ = ["Reader", "codes_in", "items_in", "user_text"]


def user_text(request: Request) -> str:
    content = request.messages[-1].content
    assert isinstance(content, str)
    return content


def codes_in(prompt: str) -> dict[str, str]:
    """Return the labels of a prompt with their codes."""
    block = prompt.partition("Labels:\n")[2].partition("\n\n")[0]
    return {label: code for code, label in re.findall(r"^(\w+) = (.*)$", block, re.MULTILINE)}


def items_in(prompt: str, head: str = "Items") -> list[str]:
    """Return the items of a prompt, in order."""
    if "Item:\n" in prompt and f"{head}:\n" not in prompt:
        return [prompt.partition("Item:\n")[2].rpartition("\n\n")[0].partition("\n\nFrom the")[0]]
    block = prompt.partition(f"{head}:\n")[2].partition("\n\n")[0]
    return re.split(r"\n?^\d+\. ", block, flags=re.MULTILINE)[1:]


class Reader(ScriptedClient):
    """Answers with what `say` returns for an item and a prompt; None leaves the item out."""

    def __init__(
        self,
        say: Callable[[str, str], str | None],
        *,
        window_tokens: int | None = None,
        profile: Literal["frontier", "standard", "small", "tiny"] = "standard",
    ) -> None:
        rule = (re.compile(""), self._answer)
        super().__init__(rules=[rule], window_tokens=window_tokens, profile=profile)
        self.say = say
        self.prompts: list[str] = []

    def _answer(self, request: Request) -> str:
        prompt = user_text(request)
        self.prompts.append(prompt)
        return self.reply(prompt)

    def reply(self, prompt: str) -> str:
        items = items_in(prompt)
        said = [self.say(item, prompt) for item in items]
        if len(items) == 1:
            return said[0] or ""
        lines = [f"{number}: {each}" for number, each in enumerate(said, 1) if each is not None]
        return "\n".join(lines)

    @property
    def asked(self) -> list[list[str]]:
        """The items of every prompt so far."""
        return [items_in(prompt) for prompt in self.prompts]
