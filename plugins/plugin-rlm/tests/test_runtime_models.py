"""The backend elizaos: other plugins of the runtime answer the engine's requests."""

import asyncio
from typing import Any

import pytest
from elizaos.trajectory_context import bind_trajectory_step
from elizaos.types.plugin import Plugin

from conftest import MakeRuntime
from doubles import RuntimeDouble
from elizaos_plugin_rlm import RLMClient, plugin
from models import cell

pytest.importorskip("rlm.testing.fake_server", reason="needs recursivelm")
from rlm.testing.fake_server import FakeServer

OURS = {"ELIZA_RLM_BACKEND": "elizaos"}
ASK = cell("FINAL(llm_query('Small question.') + ' ' + context)")
pytestmark = pytest.mark.usefixtures("nothing_left")


class Local:
    """A plugin with its own models."""

    def __init__(self, *model_types: str, root: str = ASK) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.root = root
        self.plugin = Plugin(
            name="local-models",
            description="answers from a script",
            models={each: self._handler(each) for each in model_types},
        )

    def _handler(self, model_type: str) -> Any:
        async def handle(runtime: Any, params: dict[str, Any]) -> str:
            self.asked.append((model_type, params))
            return "small" if "Small question." in params["prompt"] else self.root

        return handle


async def test_other_plugins_can_answer_root_requests_and_calls(make_runtime: MakeRuntime) -> None:
    local = Local("TEXT_LARGE", "TEXT_SMALL")
    runtime = await make_runtime(OURS, plugins=[plugin, local.plugin])
    params = {"prompt": "lighthouse", "temperature": 0.3, "topP": 0.5}
    assert await runtime.use_model("TEXT_LARGE", params, provider="rlm") == "small lighthouse"
    assert [model_type for model_type, _ in local.asked] == ["TEXT_LARGE", "TEXT_SMALL"]
    root = local.asked[0][1]
    assert "REPL" in root["system"]
    assert (root["temperature"], root["topP"]) == (0.3, 0.5)
    assert root["maxTokens"] > 0
    assert "lighthouse" not in str(root), "the context is read by code, and not sent along"


async def test_one_model_type_of_another_plugin_is_enough(make_runtime: MakeRuntime) -> None:
    local = Local("TEXT_LARGE")
    runtime = await make_runtime(OURS, plugins=[local.plugin, plugin])
    assert await runtime.use_model("TEXT_LARGE", {"prompt": "x"}, provider="rlm") == "small x"
    assert [model_type for model_type, _ in local.asked] == ["TEXT_LARGE", "TEXT_LARGE"]


async def test_calls_can_go_to_another_backend(
    make_runtime: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Local("TEXT_LARGE", "TEXT_SMALL")
    with FakeServer(rules=[("Small question.", "from elsewhere")]) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        config = {**OURS, "ELIZA_RLM_SUBCALL_BACKEND": "openai"}
        runtime = await make_runtime(config, plugins=[local.plugin, plugin])
        answer = await runtime.use_model("TEXT_LARGE", {"prompt": "x"}, provider="rlm")
    assert answer == "from elsewhere x"
    assert [model_type for model_type, _ in local.asked] == ["TEXT_LARGE"]


async def test_the_plugin_never_calls_itself(make_runtime: MakeRuntime) -> None:
    runtime = await make_runtime(OURS)
    result = await RLMClient(runtime=runtime).generate({"prompt": "x"})
    assert result.stub
    assert "no other plugin" in str(result.error)
    result = await RLMClient(runtime=runtime).generate({"prompt": "x", "provider": "rlm"})
    assert result.stub
    assert "a plugin other than" in str(result.error)


async def test_a_manually_registered_provider_can_be_named(
    make_runtime: MakeRuntime,
) -> None:
    local = Local("TEXT_LARGE")
    runtime = await make_runtime({**OURS, "ELIZA_RLM_PROVIDER": "by-hand"})
    handler = (local.plugin.models or {})["TEXT_LARGE"]
    runtime.register_model("TEXT_LARGE", handler, provider="by-hand")
    params = {"prompt": "x", "subcallModel": "TEXT_LARGE"}
    assert await runtime.use_model("TEXT_LARGE", params, provider="rlm") == "small x"


async def test_a_failing_plugin_fails_only_its_request(
    make_runtime: MakeRuntime,
) -> None:
    async def fail(runtime: Any, params: dict[str, Any]) -> str:
        raise KeyError("no such model")

    broken = Plugin(name="broken", description="fails", models={"TEXT_LARGE": fail})
    runtime = await make_runtime(OURS, plugins=[broken, plugin])
    text = await runtime.use_model("TEXT_LARGE", {"prompt": "x"}, provider="plugin-rlm")
    assert text.startswith("[RLM ERROR] ")
    assert "no such model" in text


async def test_a_test_double_of_the_runtime_is_called_like_the_real_one() -> None:
    double = RuntimeDouble(ELIZA_RLM_BACKEND="elizaos", ELIZA_RLM_PROVIDER="anybody")
    result = await RLMClient(runtime=double).generate({"prompt": "12345"})
    assert result.text == "5"
    ((model_type, params, provider),) = double.asked
    assert (model_type, provider) == ("TEXT_LARGE", "anybody")
    assert set(params) == {"prompt", "system", "maxTokens"}


async def test_a_conversation_with_the_root_model_is_sent_as_one_prompt() -> None:
    double = RuntimeDouble(ELIZA_RLM_BACKEND="elizaos", ELIZA_RLM_PROVIDER="anybody")
    double.reply = cell("print('peeked')")
    await RLMClient(runtime=double).generate({"prompt": "x", "maxIterations": 2})
    second = double.asked[1][1]["prompt"]
    assert second.startswith("User:\n")
    assert "\n\nAssistant:\n```repl\nprint('peeked')\n```\n\nUser:\n" in second
    assert second.endswith("Assistant:")


async def test_cancelling_reaches_the_other_plugin(make_runtime: MakeRuntime) -> None:
    began, was_cancelled = asyncio.Event(), asyncio.Event()

    async def wait(runtime: Any, params: dict[str, Any]) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return ""

    slow = Plugin(name="slow", description="waits", models={"TEXT_LARGE": wait})
    runtime = await make_runtime(OURS, plugins=[slow, plugin])
    request = asyncio.create_task(runtime.use_model("TEXT_LARGE", {"prompt": "x"}, provider="rlm"))
    await began.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert was_cancelled.is_set()


async def test_requests_logged_by_elizaos_are_not_logged_again(make_runtime: MakeRuntime) -> None:
    logger = pytest.importorskip("elizaos_plugin_trajectory_logger")
    local = Local("TEXT_LARGE")
    plugins = [logger.get_trajectory_logger_plugin(), local.plugin, plugin]
    runtime = await make_runtime(OURS, plugins=plugins)
    service: Any = runtime.get_service("trajectory_logger")
    step_id = service.start_step(service.start_trajectory(agent_id="a"))
    with bind_trajectory_step(step_id):
        await runtime.use_model("TEXT_LARGE", {"prompt": "x"}, provider="rlm")
    (trajectory,) = service.get_all_trajectories()
    kinds = [call.action_type for step in trajectory.steps for call in step.llm_calls]
    assert kinds == ["runtime.use_model"] * 3, "root, call, and the request itself"


async def test_the_real_openai_plugin_can_be_the_backend(
    make_runtime: MakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = pytest.importorskip("elizaos_plugin_openai.plugin")
    with FakeServer(rules=[("Small question.", "small"), ("", ASK)]) as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-fake")  # it checks how keys begin
        made: list[Any] = []

        usual = theirs.OpenAIPlugin

        def kept(**options: Any) -> Any:
            """Keep the plugin for the test to close; it never closes its connections itself."""
            made.append(usual(**options))
            return made[-1]

        monkeypatch.setattr(theirs, "OpenAIPlugin", kept)
        openai_plugin = theirs.create_openai_elizaos_plugin()
        runtime = await make_runtime(OURS, plugins=[openai_plugin, plugin])
        answer = await runtime.use_model("TEXT_LARGE", {"prompt": "text"}, provider="rlm")
        models = [each.asked.model for each in server.requests if each.asked]
        await made[0].close()
    assert answer == "small text"
    assert models == ["gpt-5", "gpt-5-mini"]
