"""The reference's import paths: each is there, and offers what programs import from it."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm.api import RLM
from rlm.compat import types
from tests.shape.tree import REFERENCE_PATHS, SOURCE

NAMES = {
    "rlm": "RLM BudgetExceededError TimeoutExceededError TokenLimitExceededError "
    "ErrorThresholdExceededError CancellationError",
    "rlm.core.rlm": "RLM RLMLogger VerbosePrinter LMHandler BaseLM get_client get_environment "
    "RLM_SYSTEM_PROMPT build_rlm_system_prompt build_user_prompt SupportsPersistence",
    "rlm.core.types": "ClientBackend EnvironmentType CodeBlock ModelUsageSummary QueryMetadata "
    "REPLResult RLMChatCompletion RLMIteration RLMMetadata UsageSummary",
    "rlm.core.lm_handler": "LMHandler",
    "rlm.core.comms_utils": "LMRequest LMResponse send_lm_request send_lm_request_batched",
    "rlm.clients": "BaseLM get_client",
    "rlm.clients.base_lm": "BaseLM DEFAULT_TIMEOUT",
    "rlm.clients.openai": "OpenAIClient",
    "rlm.clients.anthropic": "AnthropicClient",
    "rlm.clients.gemini": "GeminiClient",
    "rlm.clients.portkey": "PortkeyClient",
    "rlm.clients.azure_openai": "AzureOpenAIClient",
    "rlm.environments": "BaseEnv IPythonREPL LocalREPL RESERVED_TOOL_NAMES SupportsCustomTools "
    "SupportsPersistence ToolInfo extract_tool_value format_tools_for_prompt get_environment "
    "parse_custom_tools parse_tool_entry validate_custom_tools",
    "rlm.environments.base_env": "BaseEnv IsolatedEnv NonIsolatedEnv SupportsPersistence",
    "rlm.environments.local_repl": "LocalREPL",
    "rlm.environments.docker_repl": "DockerREPL",
    "rlm.environments.ipython_repl": "IPythonREPL",
    "rlm.environments.modal_repl": "ModalREPL",
    "rlm.environments.prime_repl": "PrimeREPL",
    "rlm.environments.daytona_repl": "DaytonaREPL",
    "rlm.environments.e2b_repl": "E2BREPL",
    "rlm.logger": "RLMLogger VerbosePrinter",
    "rlm.logger.rlm_logger": "RLMLogger",
    "rlm.logger.verbose": "VerbosePrinter",
    "rlm.utils.exceptions": "BudgetExceededError TimeoutExceededError TokenLimitExceededError "
    "ErrorThresholdExceededError CancellationError",
    "rlm.utils.parsing": "find_code_blocks format_iteration format_execution_result "
    "convert_context_for_repl",
    "rlm.utils.prompts": "RLM_SYSTEM_PROMPT ORCHESTRATOR_ADDENDUM USER_PROMPT "
    "build_rlm_system_prompt build_user_prompt QueryMetadata",
    "rlm.utils.rlm_utils": "filter_sensitive_keys",
    "rlm.utils.token_utils": "DEFAULT_CONTEXT_LIMIT count_tokens get_context_limit",
}


@pytest.mark.parametrize("path", NAMES)
def test_reference_names_can_be_imported_from_their_paths(path: str) -> None:
    module = importlib.import_module(path)
    missing = [name for name in NAMES[path].split() if not hasattr(module, name)]
    assert missing == []


def test_every_compatible_path_of_ours_is_in_the_list() -> None:
    assert REFERENCE_PATHS - {"rlm.core", "rlm.utils"} <= NAMES.keys()


def test_reference_names_are_our_own_classes() -> None:
    core = importlib.import_module("rlm.core.rlm")
    assert core.RLM is RLM is importlib.import_module("rlm").RLM
    assert core.RLMChatCompletion is types.Completion
    errors = importlib.import_module("rlm.utils.exceptions")
    assert errors.BudgetExceededError is importlib.import_module("rlm").BudgetExceededError


@pytest.mark.heavy  # mypy reads the whole package
def test_type_checkers_understand_reference_names(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from rlm.clients import BaseLM, get_client\n"
        "from rlm.core.types import RLMChatCompletion, UsageSummary\n"
        "from rlm.environments import get_environment\n"
        "from rlm.environments.local_repl import LocalREPL\n"
        "from rlm.logger import RLMLogger, VerbosePrinter\n"
        "client: BaseLM = get_client('vllm', {'model_name': 'm'})\n"
        "text: str = client.completion('x')\n"
        "used: UsageSummary = client.get_usage_summary()\n"
        "def told(done: RLMChatCompletion) -> str:\n"
        "    return done.response\n"
        "with LocalREPL() as repl:\n"
        "    out: str = repl.execute_code('x').stdout\n"
        "VerbosePrinter(enabled=False).print_final_answer('x')\n"
        "RLMLogger(format='reference').clear_iterations()\n"
        "reveal_type(get_environment)\n"
        "from rlm import RLM\n"
        "RLM(backend='openai', backend_kwargs={'model_name': 'm'}, max_depth=2, max_budget=1.0)\n"
        "steps: int = RLM('openai', {'model_name': 'm'}, persistent=True).max_iterations\n"
        "RLM(client, sub_model=client)\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)]
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True)
    assert "BaseEnv" in done.stdout
    assert "Success" in done.stdout or "found 0 errors" in done.stdout, done.stdout


def test_errors_accept_the_references_arguments() -> None:
    errors = importlib.import_module("rlm.utils.exceptions")
    budget = errors.BudgetExceededError(0.5, 0.4)
    assert (budget.spent, budget.budget, budget.partial_answer) == (0.5, 0.4, None)
    time = errors.TimeoutExceededError(elapsed=3.0, timeout=2.0, partial_answer="so far")
    assert (time.elapsed, time.timeout, time.partial_answer) == (3.0, 2.0, "so far")
    tokens = errors.TokenLimitExceededError(tokens_used=9, token_limit=5, message="told")
    assert (tokens.tokens_used, tokens.token_limit, str(tokens)) == (9, 5, "told")
    failed = errors.ErrorThresholdExceededError(error_count=2, threshold=2, last_error="boom")
    assert (failed.error_count, failed.threshold, failed.last_error) == (2, 2, "boom")
    assert errors.CancellationError(partial_answer="p").partial_answer == "p"
    for error in (budget, time, tokens, failed):
        assert str(error)
        assert isinstance(error, Exception)


def test_types_convert_to_dicts_and_back() -> None:
    used = types.UsageTotals({"gpt-4o": types.ModelUsage(2, 30, 4, 0.5)})
    done = types.Completion("gpt-4o", {"a": 1}, "yes", used, 1.5, {"iterations": []})
    told = done.to_dict()
    assert told["usage_summary"]["total_cost"] == 0.5
    assert types.Completion.from_dict(told) == done
    assert "error" not in told
    result = types.REPLResult(
        "out",
        "",
        {"f": test_reference_names_can_be_imported_from_their_paths, "m": sys, "n": [1, (2,)]},
        0.1,
    )
    block = types.CodeBlock("x", result).to_dict()["result"]
    assert block["locals"]["m"] == "<module 'sys'>"
    assert (
        block["locals"]["f"] == "<function 'test_reference_names_can_be_imported_from_their_paths'>"
    )
    assert block["locals"]["n"] == [1, [2]]
    assert (block["rlm_calls"], block["final_answer"]) == ([], None)
    nothing: Any = None
    assert types.REPLResult("", "", {}, rlm_calls=nothing).rlm_calls == []
    assert types.QueryMetadata(["ab", "c"]).context_total_length == 3
    assert types.QueryMetadata([{"role": "user", "content": "abcd"}]).context_lengths == [4]
    number: Any = 7
    with pytest.raises(ValueError, match="str, a list or a dict"):
        types.QueryMetadata(number)


def test_prompts_can_be_extended() -> None:
    prompts = importlib.import_module("rlm.utils.prompts")
    more = prompts.RLM_SYSTEM_PROMPT + '\nReply as {{"content": "…"}}.'
    tools = {"find": {"tool": len, "description": "finds things"}}
    meta = prompts.QueryMetadata("abc")
    system, user = prompts.build_rlm_system_prompt(more, meta, tools, "How many?")
    assert system["content"].endswith(prompts.ORCHESTRATOR_ADDENDUM)
    assert 'Reply as {"content": "…"}.' in system["content"]
    assert "- `find`: finds things" in system["content"]
    assert "custom_tools_section" not in system["content"]
    assert "How many?" in user["content"]
    assert "2/9" in prompts.build_user_prompt(iteration=1, max_iterations=9)["content"]


def test_a_custom_prompt_is_formatted_like_the_references_template() -> None:
    made = {"model_name": "m", "base_url": "http://127.0.0.1:9/v1"}
    written = {
        'Use {{"a": 1}}. Tools:\n{custom_tools_section}': 'Use {"a": 1}. Tools:\n- `f`: counts',
        'No template: {"a": 1}': 'No template: {"a": 1}',
    }
    for template, shown in written.items():
        tools = {"f": {"tool": len, "description": "counts"}}
        one = RLM(
            backend="vllm",
            backend_kwargs=made,
            custom_system_prompt=template,
            custom_tools=tools,
        )
        assert one.config.system_prompt == shown
        assert one.system_prompt == template


def test_parsing_functions_behave_like_the_references() -> None:
    parsing = importlib.import_module("rlm.utils.parsing")
    text = "First:\n```repl\na = 1\n```\n```python\nno\n```\n```repl\nb = 2\n\nc = 3\n```\nend"
    assert parsing.find_code_blocks(text) == ["a = 1", "b = 2\n\nc = 3"]
    assert parsing.find_code_blocks("none") == []
    result = types.REPLResult("x" * 50, "", {"n": 1, "_p": 2, "f": len})
    step = types.RLMIteration("p", "said", [types.CodeBlock("c", result)] * 2)
    said, outputs = parsing.format_iteration(step, max_character_length=20)
    assert said == {"role": "assistant", "content": "said"}
    assert outputs["content"].count("REPL output (block") == 2
    assert "chars...]" in outputs["content"]
    assert parsing.format_execution_result(types.REPLResult("", "", {})) == "No output"
    assert "['n']" in parsing.format_execution_result(result)
    assert parsing.convert_context_for_repl([{"content": "a"}]) == (["a"], None)
    assert parsing.convert_context_for_repl("a") == (None, "a")


def test_classes_for_subclassing_are_documented() -> None:
    """Every class that a program may subclass says how."""
    for path in ("rlm.clients.base_lm", "rlm.environments.base_env", "rlm.environments.local_repl"):
        for name in importlib.import_module(path).__all__:
            value = getattr(importlib.import_module(path), name)
            if inspect.isclass(value):
                assert inspect.getdoc(value), name
