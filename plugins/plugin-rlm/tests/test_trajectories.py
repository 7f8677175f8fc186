"""Trajectories and costs, from the engine's events and in elizaOS's own service."""

from collections.abc import Iterator
from typing import Any

import pytest
from elizaos.trajectory_context import bind_trajectory_step

from conftest import MakeRuntime
from elizaos_plugin_rlm import RLMClient, RLMConfig, RLMCost, plugin
from models import cell

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")
from rlm.testing.fake_server import FakeServer

ROOT = cell("print(len(context))\nFINAL(llm_query('Say it.'))")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    with FakeServer(rules=[("Say it.", "it"), ("", ROOT)]) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ELIZA_RLM_BACKEND", "openai")
        yield server


@pytest.mark.usefixtures("server")
async def test_a_result_describes_how_it_was_found() -> None:
    client = RLMClient(RLMConfig(backend="openai"))
    result = await client.infer("x" * 4321)
    assert (result.text, result.stub, result.error) == ("it", False, None)
    assert (result.iterations, result.stop_reason) == (1, "answer")
    trajectory = result.trajectory
    assert trajectory is not None
    called, step = trajectory.steps[1], trajectory.steps[0]
    assert (called.prompt, called.response, called.is_subcall) == ("Say it.", "it", True)
    assert step.response == ROOT
    assert "print(len(context))" in step.code_executed
    assert step.repl_output == "4321\n"
    assert trajectory.subcall_count == 1
    assert trajectory.final_response == "it"
    assert list(client.trajectories) == [trajectory]
    assert client.export_trajectories() == [trajectory.to_dict()]
    client.clear_trajectories()
    assert client.export_trajectories() == []


@pytest.mark.usefixtures("server")
async def test_totals_are_those_of_the_engine() -> None:
    from rlm.events import RunEnded

    client = RLMClient(RLMConfig(backend="openai"))
    result = await client.infer("text")
    assert result.trajectory is not None
    assert result.cost is not None
    (ended,) = [each for each in result.trajectory.events if isinstance(each, RunEnded)]
    assert result.cost.total_input_tokens == ended.usage.input_tokens > 0
    assert result.cost.total_output_tokens == ended.usage.output_tokens > 0
    assert result.cost.total_cost_usd == ended.usage.cost_usd
    assert result.cost.requests == 2
    assert result.cost.subcall_input_tokens > 0
    await client.infer("text")
    summary = client.get_cost_summary()
    assert (summary["answers"], summary["requests"]) == (2, 4)
    assert summary["total_tokens"] == 2 * result.cost.total_tokens
    assert summary["total_cost_usd"] == pytest.approx(2 * (result.cost.total_cost_usd or 0))


async def test_totals_of_child_runs_are_counted_once(server: FakeServer) -> None:
    from rlm.events import RunEnded

    ask = cell("FINAL(rlm_query('The child.'))")
    answer = cell("FINAL(llm_query('Say it.'))")
    rules = [("Say it.", "it"), ("a str of 10 characters", answer), ("", ask)]
    with FakeServer(rules=rules) as nested:
        config = RLMConfig(
            backend="openai", max_depth=2, backend_kwargs={"base_url": nested.openai_url}
        )
        result = await RLMClient(config).infer("text")
    assert result.text == "it"
    assert result.depth == 1
    assert result.trajectory is not None
    assert result.cost is not None
    ended = [each for each in result.trajectory.events if isinstance(each, RunEnded)][-1]
    assert result.cost.total_input_tokens == ended.usage.input_tokens
    assert result.cost.requests == ended.usage.requests == 3


def test_a_total_with_an_unknown_price_is_unknown() -> None:
    known = RLMCost(total_cost_usd=0.5, requests=1)
    assert (known + known).total_cost_usd == 1.0
    assert (known + RLMCost(requests=1)).total_cost_usd is None
    assert (known + RLMCost()).total_cost_usd == 0.5


@pytest.mark.usefixtures("server")
async def test_long_texts_are_cut_in_exports() -> None:
    result = await RLMClient(RLMConfig(backend="openai")).infer("y" * 10_000)
    assert result.trajectory is not None
    result.trajectory.steps[0].repl_output = "z" * 100_000
    assert len(str(result.to_dict())) < 10_000


# -- elizaOS's own service -----------------------------------------------------------------------


def logged(service: Any) -> tuple[list[Any], list[Any]]:
    """Return all calls and all accesses of the only trajectory."""
    (trajectory,) = service.get_all_trajectories()
    calls = [call for step in trajectory.steps for call in step.llm_calls]
    accesses = [access for step in trajectory.steps for access in step.provider_accesses]
    return calls, accesses


@pytest.mark.usefixtures("server")
async def test_the_trajectory_service_receives_every_reply(make_runtime: MakeRuntime) -> None:
    logger = pytest.importorskip("elizaos_plugin_trajectory_logger")
    runtime = await make_runtime(plugins=[logger.get_trajectory_logger_plugin(), plugin])
    service: Any = runtime.get_service("trajectory_logger")
    step_id = service.start_step(service.start_trajectory(agent_id=str(runtime.agent_id)))
    with bind_trajectory_step(step_id):
        await runtime.use_model("TEXT_LARGE", {"prompt": "text", "temperature": 0.5})
    calls, accesses = logged(service)
    kinds = [(call.action_type, call.response) for call in calls]
    assert kinds == [("rlm.step", ROOT), ("rlm.call", "it"), ("runtime.use_model", "it")]
    assert calls[0].prompt_tokens > 0
    assert calls[0].temperature == 0.5
    (access,) = accesses
    assert access.provider_name == "rlm"
    assert access.data["subcalls"] == 1
    assert access.data["total_cost_usd"] > 0


@pytest.mark.usefixtures("server")
async def test_nothing_is_logged_outside_a_step(make_runtime: MakeRuntime) -> None:
    logger = pytest.importorskip("elizaos_plugin_trajectory_logger")
    runtime = await make_runtime(plugins=[logger.get_trajectory_logger_plugin(), plugin])
    service: Any = runtime.get_service("trajectory_logger")
    service.start_step(service.start_trajectory(agent_id=str(runtime.agent_id)))
    assert await runtime.use_model("TEXT_LARGE", {"prompt": "text"}) == "it"
    assert logged(service) == ([], [])


@pytest.mark.usefixtures("server")
async def test_a_failing_trajectory_service_does_not_fail_the_request(
    make_runtime: MakeRuntime,
) -> None:
    class Broken:
        def log_llm_call(self, **_: Any) -> None:
            raise OSError("the disk is full")

    runtime = await make_runtime()
    services: dict[str, Any] = runtime.services
    services["trajectory_logger"] = [Broken()]
    with bind_trajectory_step("some-step"):
        assert await runtime.use_model("TEXT_LARGE", {"prompt": "text"}) == "it"
