"""The tool `ask`: an agent asks about a context that it never sees."""

import asyncio
from dataclasses import dataclass

import pytest
from pydantic_ai import Agent, RunContext, UsageLimits
from pydantic_ai.messages import ModelResponse, ToolCallPart
from recursivelm_pydantic_ai import AskToolset
from scripted import cell, one_question, scripted, text_of, tool_returns

from rlm import ConfigError
from rlm.limits import Budget, Limits

LOG = "ok\n" * 50_000 + "ERROR disk sda1 is full\n" + "ok\n" * 50_000


async def test_an_agent_gets_an_answer_about_a_context_it_does_not_see() -> None:
    found = cell("FINAL([line for line in context.splitlines() if 'ERROR' in line][0])")
    model, asked = one_question("Which error?", found)
    agent = Agent(model, toolsets=[AskToolset(LOG, about="last night's log")])
    result = await agent.run("What went wrong?")
    assert result.output == "The tool said so."
    [returned] = tool_returns(result.all_messages())
    assert returned.content == "ERROR disk sda1 is full"
    assert returned.metadata["steps"] == returned.metadata["requests"] == 1
    [tool] = asked[0][1].function_tools
    assert "last night's log" in (tool.description or "")
    assert all(len(text_of(messages)) < 50_000 for messages, _ in asked)
    assert len(asked) == 3, "the agent's two requests, and the engine's one"


async def test_tokens_count_towards_the_agents_usage() -> None:
    model, _ = one_question("What?", cell("FINAL('x')"))
    result = await Agent(model, toolsets=[AskToolset(LOG)]).run("Go")
    usage = result.usage
    assert usage.requests == 2
    assert usage.input_tokens > 500, "the engine's system prompt is counted"


async def test_the_agents_token_limit_applies_to_the_engine() -> None:
    ask = ModelResponse([ToolCallPart("ask", {"question": "What?"})])
    model, asked = scripted(ask, "I could not.")
    agent = Agent(model, toolsets=[AskToolset(LOG)])
    result = await agent.run("Go", usage_limits=UsageLimits(total_tokens_limit=1_000))
    [returned] = tool_returns(result.all_messages())
    assert "was not answered" in str(returned.content)
    assert "tokens" in str(returned.content)
    assert len(asked) == 2, "the worst case of a request did not fit, so none was sent"


async def test_all_questions_share_one_budget() -> None:
    budget = Budget(Limits(max_tokens=1))
    ask = ModelResponse([ToolCallPart("ask", {"question": "What?"})])
    model, asked = scripted(ask, "I could not.")
    agent = Agent(model, toolsets=[AskToolset(LOG, budget=budget)])
    result = await agent.run("Go")
    [returned] = tool_returns(result.all_messages())
    assert "was not answered" in str(returned.content)
    assert len(asked) == 2, "nothing was sent for the question"


@dataclass
class Deps:
    log: str


async def test_the_context_may_come_from_the_run() -> None:
    async def log_of(ctx: RunContext[Deps]) -> str:
        return ctx.deps.log

    model, _ = one_question("How long?", cell("FINAL(len(context))"))
    agent = Agent(model, deps_type=Deps, toolsets=[AskToolset(log_of)])
    result = await agent.run("Go", deps=Deps("12345"))
    assert tool_returns(result.all_messages())[0].content == "5"


async def test_a_huge_answer_is_cut_and_a_failure_reported() -> None:
    model, _ = one_question("All?", cell("FINAL(context)"))
    agent = Agent(model, toolsets=[AskToolset(LOG, max_answer_chars=100)])
    [returned] = tool_returns((await agent.run("Go")).all_messages())
    assert str(returned.content).endswith("more characters; ask for less at once)")
    assert len(str(returned.content)) < 200
    with pytest.raises(ConfigError, match="max_answer_chars must be at least 1"):
        AskToolset(LOG, max_answer_chars=0)


async def test_code_runs_in_the_sandbox() -> None:
    code = (
        "import os\ntry: seen = os.listdir('/etc')\nexcept OSError as e: seen = e\nFINAL(str(seen))"
    )
    model, _ = one_question("Escape", cell(code))
    [returned] = tool_returns(
        (await Agent(model, toolsets=[AskToolset(LOG)]).run("Go")).all_messages()
    )
    assert "passwd" not in str(returned.content)


async def test_cancelling_the_agent_cancels_the_question() -> None:
    model, asked = one_question("Wait", cell("import time\ntime.sleep(60)"))
    task = asyncio.create_task(Agent(model, toolsets=[AskToolset(LOG)]).run("Go"))
    while len(asked) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
