"""`environment="ipython"`: the local sandbox, with IPython's shell in it."""

import importlib.util
import inspect
import json
import sys
from typing import Any

from rlm._util.distribution import install_command
from rlm.environments._forked import ForkedSession
from rlm.environments.local import LocalEnvironment
from rlm.errors import ConfigError
from rlm.protocols import Host

__all__ = ["IPythonEnvironment"]

_NOT_LINUX = "environment='ipython' is the local sandbox, which needs Linux"


class IPythonEnvironment(LocalEnvironment):
    """Opens sessions as hardened processes that run cells in IPython.

    Cells have magics (`%timeit`, `%%time`, `%%capture`, `%who`), `?`, `_`, `In`, `Out` and
    `display()`, which shows everything as text. `!command` is refused: the sandbox starts no
    programs. The options are those of `local`; `packages` need not include IPython itself.
    """

    name = "ipython"
    __signature__ = inspect.signature(LocalEnvironment)

    def __init__(self, **options: Any) -> None:
        own_python = options.get("python", sys.executable) == sys.executable
        self._problem = self.problem() if own_python else None
        asked = [*options.pop("packages", ())]
        super().__init__(packages=asked if self._problem else [*asked, "ipython"], **options)
        # Preload only what the shell uses; cells can import the rest of what IPython requires.
        loaded = [each for each in self._settings["packages"] if each in asked]
        self._settings |= {"packages": [*loaded, "IPython"], "early": ["ipython"]}
        self._settings_json = json.dumps(self._settings, sort_keys=True)

    @classmethod
    def problem(cls) -> str | None:
        """Return why it can't be used here, or None."""
        if sys.platform != "linux":
            return _NOT_LINUX
        if importlib.util.find_spec("IPython"):
            return None
        return f"environment='ipython' needs IPython: {install_command('ipython')}"

    async def open(self, host: Host, options: dict[str, Any]) -> ForkedSession:
        """Take or fork a session; the options are those of `local`."""
        if self._problem is not None:
            raise ConfigError(self._problem)
        return await super().open(host, {**options, "shell": "ipython"})

    async def describe(self) -> dict[str, Any]:
        """Return which layers protect this machine."""
        if self._problem is not None:
            raise ConfigError(self._problem)
        return await super().describe()
