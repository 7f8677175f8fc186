"""A real Ray cluster on this machine, small and quiet; without the package nothing is tested."""

import asyncio
import contextlib
import importlib
import importlib.util
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rlm.environments.ray import RayEnvironment
from tests.processes import is_running

HAS_RAY = importlib.util.find_spec("ray") is not None
collect_ignore = [] if HAS_RAY else ["test_client_port.py", "test_ray.py", "test_two_nodes.py"]

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_DISABLE_IMPORT_WARNING="1",
    RAY_memory_monitor_refresh_ms="0",  # Other tests on this machine may take its memory.
    RAY_enable_metrics_collection="0",
    RAY_prestart_worker_first_driver="0",
    # A machine that is busy with other tests is slow, not dead.
    RAY_health_check_timeout_ms="60000",
    RAY_gcs_rpc_server_reconnect_timeout_s="300",
    RAY_gcs_server_request_timeout_seconds="300",
)
_TRIES = 3
SMALL: dict[str, Any] = {
    "num_cpus": 1,
    "object_store_memory": 100 << 20,
    "include_dashboard": False,
}


def add_node(cluster: Any) -> Any:
    """One more node, tried again if the machine is too busy for Ray's own patience."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(Exception):
            return cluster.add_node(**SMALL)
    return cluster.add_node(**SMALL)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """One node, with this process as its driver; tests add others."""
    ray: Any = importlib.import_module("ray")
    made = importlib.import_module("ray.cluster_utils").Cluster()
    add_node(made)
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
async def made(cluster: Any) -> AsyncIterator[Callable[..., RayEnvironment]]:
    """Makes environments on the cluster, which are closed after the test; their actors end."""
    environments: list[RayEnvironment] = []

    def make(**options: Any) -> RayEnvironment:
        environment = RayEnvironment(**options)
        environments.append(environment)
        return environment

    yield make
    processes = [host.process for each in environments for host in each.hosts]
    for each in environments:
        await each.close()
    assert not await left(processes)


async def left(processes: list[int], seconds: float = 60.0) -> list[int]:
    """Return processes still alive after they had time to end."""
    for _ in range(int(seconds / 0.1)):
        if not any(is_running(process) for process in processes):
            break
        await asyncio.sleep(0.1)
    return [process for process in processes if is_running(process)]
