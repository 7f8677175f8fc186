"""What a gateway for tests is made of, in plain values: so one can be made in another process."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlm.data.filesystem.denial import Denials
from rlm.gateway.gateway import Gateway
from rlm.gateway.models import Models
from rlm.gateway.paths import Root
from rlm.gateway.provenance import Provenance
from rlm.gateway.sessions import Ceilings
from rlm.messages import Price
from rlm.testing.scripted import ScriptedClient


@dataclass
class Recipe:
    """The settings of a gateway. `script`: replies of its model, or None for no model."""

    folder: Path
    roots: tuple[str, ...] = ("repo",)
    ceilings: dict[str, Any] = field(default_factory=dict)
    script: list[str] | None = None
    delay_seconds: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / self.roots[0]

    def dumped(self) -> str:
        return json.dumps({**self.__dict__, "folder": str(self.folder)})

    @classmethod
    def read(cls, text: str) -> "Recipe":
        facts = json.loads(text)
        folder = Path(facts.pop("folder"))
        return cls(folder=folder, **facts)

    def gateway(self, **more: Any) -> Gateway:
        """What the recipe says; `more` is for tests in the same process."""
        models = None
        if self.script is not None:
            client = ScriptedClient(
                self.script, price=Price(1.0, 2.0), delay_seconds=self.delay_seconds
            )
            models = Models(client)
        options: dict[str, Any] = {"shows_names": True, "models": models, **self.options, **more}
        return Gateway(
            [Root(self.folder / name, name, Denials()) for name in self.roots],
            Provenance(self.folder / f"provenance-{os.getpid()}.jsonl"),
            ceilings=Ceilings(**self.ceilings),
            **options,
        )
