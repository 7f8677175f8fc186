"""The four environments, each on a double of its SDK."""

import contextlib
import sys
from collections.abc import Generator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from rlm.environments._clouds import Cloud
from rlm.environments.daytona import DaytonaEnvironment
from rlm.environments.e2b import E2BEnvironment
from rlm.environments.modal import ModalEnvironment
from rlm.environments.prime import PrimeEnvironment
from rlm.environments.remote import sandbox_settings
from tests.environments.clouds import sdk_daytona, sdk_e2b, sdk_modal, sdk_prime
from tests.environments.clouds.machine import Machine, installed

__all__ = ["CLOUDS", "KEY", "NAMES", "Provider", "on_double"]

KEY = "private-0123456789"


class Provider(NamedTuple):
    """An environment, the double of its SDK, and the calls that make, start and end."""

    environment: type[Cloud]
    double: ModuleType
    create: str
    start: str
    end: str


CLOUDS = {
    "modal": Provider(
        ModalEnvironment,
        sdk_modal,
        "Sandbox.create.aio",
        "Sandbox.exec.aio",
        "Sandbox.terminate.aio",
    ),
    "prime": Provider(
        PrimeEnvironment,
        sdk_prime,
        "AsyncSandboxClient.create",
        "AsyncSandboxClient.open_process",
        "AsyncSandboxClient.delete",
    ),
    "e2b": Provider(
        E2BEnvironment, sdk_e2b, "AsyncSandbox.create", "Commands.run", "AsyncSandbox.kill"
    ),
    "daytona": Provider(
        DaytonaEnvironment,
        sdk_daytona,
        "AsyncDaytona.create",
        "AsyncProcess.execute_session_command",
        "AsyncSandbox.delete",
    ),
}
NAMES = list(CLOUDS)


@contextlib.contextmanager
def on_double(cloud: str, /, **options: Any) -> Generator[tuple[Cloud, Machine]]:
    """An environment and the machine that plays its provider.

    The `/tmp` of a sandbox is its own; here `.` is, the folder in which its programs start.
    """
    provider = CLOUDS[cloud]
    machine = Machine()
    with pytest.MonkeyPatch.context() as patch, installed(provider.double.modules(machine)):
        patch.setenv(provider.environment.key_names[0], KEY)
        environment = provider.environment(python=sys.executable, **options)
        hardened = options.get("hardened", False)
        environment._settings = sandbox_settings(hardened=hardened, scratch=".")
        yield environment, machine
