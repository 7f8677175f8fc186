"""A real engine and an image, which `.ci/with-docker` brings; without them nothing is tested."""

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rlm.environments.docker import DockerEnvironment

IMAGE = os.environ.get("TEST_DOCKER_IMAGE", "")
collect_ignore = [] if IMAGE else ["test_docker.py"]


@pytest.fixture
async def made() -> AsyncIterator[Callable[..., DockerEnvironment]]:
    """Makes environments of the test image, which are closed after the test."""
    environments = []

    def make(**options: Any) -> DockerEnvironment:
        given: dict[str, Any] = {"image": IMAGE, "python": os.environ["TEST_DOCKER_PYTHON"]}
        environment = DockerEnvironment(**{**given, **options})
        environments.append(environment)
        return environment

    yield make
    for each in environments:
        await each.close()
    assert containers() == []


def containers(only: str = "label=rlm.owner") -> list[str]:
    """The ids of the containers there are."""
    return docker("ps", "--all", "--quiet", "--no-trunc", "--filter", only).split()


def docker(*words: str, check: bool = True) -> str:
    """What a command of docker prints."""
    done = subprocess.run(["docker", *words], check=check, capture_output=True, text=True)
    return done.stdout
