"""`rlm/<model>` through llm's Python interface, over scripted models."""

import asyncio
import contextlib
import gc
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import llm
import pytest
from llm_rlm import chats
from scripted_models import Said, cell

from rlm.environments.wasm import WasmEnvironment
from rlm.portal import portal

no_wasm = WasmEnvironment.problem()
LINES = "\n".join(f"line {number}" for number in range(20_000)) + "\nthe needle is 42"
FIND = cell("import re\nFINAL(re.search(r'needle is (\\d+)', context).group(1))", "I search.")


def parts_of(response: Any, kind: str) -> list[Any]:
    return [
        part
        for message in response.messages()
        for part in message.parts
        if type(part).__name__ == kind
    ]


# -- what is read ---------------------------------------------------------------------------------


def test_a_fragment_is_the_context_and_never_part_of_a_prompt(
    said: Said, wrapped: llm.Model
) -> None:
    said.steps = [FIND]
    response = wrapped.prompt("Which number?", fragments=[LINES])
    assert response.text() == "42"
    assert "Which number?" in said.text
    assert "line 17" not in said.text
    assert len(said.text) < 20_000


def test_neither_end_of_a_context_is_in_a_prompt(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("print(len(context))"), cell("FINAL(len(context))")]
    text = f"canary 1\n{LINES}\ncanary 2"
    assert wrapped.prompt("Explain the text with care", fragments=[text]).text() == str(len(text))
    assert "canary" not in said.text


async def test_the_async_model_behaves_the_same(said: Said) -> None:
    said.steps = [FIND]
    response = llm.get_async_model("rlm/scripted").prompt("Which number?", fragments=[LINES])
    assert await response.text() == "42"
    assert (await response.usage()).input == 500


def test_a_blocking_model_also_gets_an_async_form(said: Said) -> None:
    said.steps = [FIND]
    assert llm.get_model("rlm/small").prompt("?", fragments=[LINES]).text() == "42"
    response = llm.get_async_model("rlm/small").prompt("?", fragments=[LINES])
    assert asyncio.run(response.text()) == "42"


def test_several_fragments_become_a_dict_by_short_name(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL(sorted(context))")]
    fragments: list[Any] = [
        llm.Fragment("a", "/secret/place/app.log"),
        llm.Fragment("b", "/other/app.log"),
        llm.Fragment("c", "https://example.com/x/notes.txt?q=1"),
        "d",
    ]
    answer = wrapped.prompt("Names?", fragments=fragments).text()
    assert answer == "['app.log', 'app.log (2)', 'fragment_4', 'notes.txt']"
    assert "/secret" not in said.text


def test_attachments_become_variables_too(said: Said, wrapped: llm.Model, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("name,age\nAda,36\n")
    said.steps = [cell("FINAL([type(each).__name__ for each in (context, context_1, context_2)])")]
    attachments = [
        llm.Attachment(type="text/csv", path=str(tmp_path / "data.csv")),
        llm.Attachment(type="application/octet-stream", content=b"\x00\xff\x01"),
    ]
    answer = wrapped.prompt("Types?", fragments=["text"], attachments=attachments).text()
    assert answer.startswith("['str', ")
    assert answer.endswith("'bytes']")


def test_no_local_path_is_revealed(said: Said, wrapped: llm.Model, tmp_path: Path) -> None:
    said.steps = [cell("FINAL(sorted(context))")]
    attachments = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "app.log").write_text(folder)
        path = str(tmp_path / folder / "app.log")
        attachments.append(llm.Attachment(type="text/plain", path=path))
    answer = wrapped.prompt("?", attachments=attachments).text()
    assert answer.count("app.log") == 2
    assert str(tmp_path) not in answer + said.text


def test_a_text_attachment_without_a_path_is_read_as_text(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL(context.upper())")]
    attachment = llm.Attachment(type="text/plain", content=b"shout")
    assert wrapped.prompt("?", attachments=[attachment]).text() == "SHOUT"


@pytest.mark.parametrize("kind", ["missing", "pipe"])
def test_an_attachment_that_is_not_a_file_is_a_clear_error(
    said: Said, wrapped: llm.Model, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "it"
    if kind == "pipe":
        os.mkfifo(path)
    attachment = llm.Attachment(type="text/plain", path=str(path))
    with pytest.raises(llm.ModelError, match=r"no such file|is a pipe"):
        wrapped.prompt("?", attachments=[attachment]).text()
    assert said.asked == []


def test_a_long_question_becomes_a_context(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL(len(context))")]
    question = "very " * 10_000 + "long?"
    assert wrapped.prompt(question).text() == str(len(question))
    assert "very very" not in said.text
    said.steps = [cell("FINAL(sorted(context))")]
    assert wrapped.prompt(question, fragments=["x"]).text() == "['fragment_1', 'task']"
    assert 'context["task"]' in said.text


def test_short_instructions_are_in_the_prompt_and_long_ones_in_the_context(
    said: Said, wrapped: llm.Model
) -> None:
    said.steps = [cell("FINAL('ok')")]
    wrapped.prompt("?", system="Answer in Latin.").text()
    assert "Answer in Latin." in said.text
    said.steps = [cell("FINAL(len(context['instructions']))")]
    answer = wrapped.prompt("?", fragments=["x"], system="so " * 10_000).text()
    assert answer == str(len("so " * 10_000) - 1)
    assert "so so" not in said.text


def test_nothing_to_answer_is_an_error(said: Said, wrapped: llm.Model) -> None:
    with pytest.raises(llm.ModelError, match="nothing to answer"):
        wrapped.prompt("").text()


# -- conversations --------------------------------------------------------------------------------


def test_a_conversation_keeps_variables_and_contexts(said: Said, wrapped: llm.Model) -> None:
    said.steps = [
        cell("kept = len(context)\nFINAL('first')"),
        cell("FINAL((kept, context_1, history[0]['answer']))"),
    ]
    conversation = wrapped.conversation()
    assert conversation.prompt("One?", fragments=[LINES]).text() == "first"
    second = conversation.prompt("Two?", fragments=["more"]).text()
    assert second == f"({len(LINES)}, 'more', 'first')"
    assert "line 17" not in said.text


def test_a_chat_is_closed_with_its_conversation(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL(1)")]
    conversation = wrapped.conversation()
    conversation.prompt("One?").text()
    assert len(chats._open_chats) == 1
    conversation.responses.clear()
    del conversation
    gc.collect()
    assert chats._open_chats == {}


def test_a_prompt_without_a_conversation_leaves_nothing_open(
    said: Said, wrapped: llm.Model
) -> None:
    said.steps = [cell("FINAL(1)")]
    wrapped.prompt("One?").text()
    assert chats._open_chats == {}


async def test_a_conversation_outlives_its_event_loop(said: Said) -> None:
    said.steps = [cell("kept = 7\nFINAL(0)"), cell("FINAL(kept)")]
    conversation = llm.get_async_model("rlm/scripted").conversation()

    async def asked(text: str) -> str:
        return await conversation.prompt(text).text()

    found = [await asyncio.to_thread(asyncio.run, asked(text)) for text in ("One?", "Two?")]
    assert found == ["0", "7"]


def test_messages_of_an_earlier_process_are_available_to_the_next_run(
    said: Said, wrapped: llm.Model
) -> None:
    said.steps = [
        cell("FINAL((len(context), [m['role'] for m in earlier], earlier[1]['content']))")
    ]
    before = [llm.system("Be brief."), llm.user(f"{LINES}\nWhich number?"), llm.assistant("42")]
    answer = wrapped.prompt("And its double?", messages=before).text()
    assert answer == f"({len(LINES) + 14}, ['user', 'assistant'], '42')"
    assert "Earlier query: Which number?" in said.text
    assert "Your answer: 42" in said.text
    assert "Be brief." in said.text
    assert "line 17" not in said.text


def test_changed_instructions_apply_from_then_on(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL('first')"), cell("FINAL(earlier[0]['content'])")]
    conversation = wrapped.conversation()
    conversation.prompt("One?", system="In Latin.").text()
    assert conversation.prompt("Two?", system="In Greek.").text() == "One?"
    assert "In Greek." in said.asked[-1][1]


def test_long_instructions_are_added_once(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL(len(context))"), cell("FINAL('context_1' in globals())")]
    conversation = wrapped.conversation()
    conversation.prompt("One?", system="so " * 10_000).text()
    assert conversation.prompt("Two?").text() == "False"


def test_a_failed_turn_can_be_repeated(said: Said, wrapped: llm.Model, tmp_path: Path) -> None:
    said.steps = [cell("FINAL((context, earlier[0]['content']))")]
    late = llm.Attachment(type="text/plain", path=str(tmp_path / "late.txt"))
    conversation = wrapped.conversation()
    before = [llm.user("Before?"), llm.assistant("Yes.")]
    with pytest.raises(llm.ModelError, match="no such file"):
        conversation.prompt("One?", attachments=[late], messages=before).text()
    (tmp_path / "late.txt").write_text("here")
    again = conversation.prompt("One?", attachments=[late], messages=before)
    assert again.text() == "('here', 'Before?')"


def test_changed_options_start_a_new_chat_with_the_history(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("kept = 1\nFINAL('first')"), cell("FINAL(earlier[1]['content'])")]
    conversation = wrapped.conversation()
    conversation.prompt("One?").text()
    assert conversation.prompt("Two?", max_steps=3).text() == "first"
    assert len(chats._open_chats) == 1


def test_two_threads_have_separate_runs(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL(context)")]
    answers: dict[str, str] = {}

    def ask(text: str) -> None:
        answers[text] = wrapped.prompt("?", fragments=[text]).text()

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {name: name for name in ("one", "two", "three")}


# -- what comes back ------------------------------------------------------------------------------


def test_cells_are_logged_as_tool_calls_and_the_rest_as_reasoning(
    said: Said, wrapped: llm.Model
) -> None:
    said.steps = [
        cell("print(len(context))\nprint(llm_batch(['a', 'b']))", "I look."),
        cell("1 / 0"),
        cell("FINAL('done')"),
    ]
    response = wrapped.prompt("?", fragments=["xyz"])
    kinds = [event.type for event in response.stream_events()]
    assert kinds[-1] == "text"
    assert kinds.count("tool_result") == 3
    calls, results = parts_of(response, "ToolCallPart"), parts_of(response, "ToolResultPart")
    assert calls[0].arguments == {"code": "print(len(context))\nprint(llm_batch(['a', 'b']))"}
    assert all(part.server_executed for part in (*calls, *results))
    assert [part.tool_call_id for part in calls] == [part.tool_call_id for part in results]
    assert results[0].output.startswith("3\n['a reply', 'a reply']")
    assert "ZeroDivisionError" in results[1].output
    reasoning = "".join(part.text for part in parts_of(response, "ReasoningPart"))
    assert "step 1: I look." in reasoning
    assert "2 calls" in reasoning
    assert response.tool_calls() == []


def test_only_both_ends_of_a_cells_output_are_logged(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("print(context)\nFINAL('done')")]
    response = wrapped.prompt("?", fragments=[LINES])
    assert response.text() == "done"
    output = parts_of(response, "ToolResultPart")[0].output
    assert len(output) < 2_100
    assert "characters left out" in output


def test_reasoning_can_be_hidden(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL('done')", "I think.")]
    response = wrapped.prompt("?", hide_reasoning=True)
    assert [event.type for event in response.stream_events()] == [
        *("tool_call_name", "tool_call_args", "tool_result", "text")
    ]


def test_usage_distinguishes_steps_from_sub_calls(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("llm_query('a')\nllm_query('b')"), cell("FINAL('done')")]
    usage = wrapped.prompt("?", sub_model="small").usage()
    assert (usage.input, usage.output) == (2_000, 40)
    assert usage.details is not None
    assert usage.details["steps"] == {"requests": 2, "input": 1_000, "output": 20}
    assert usage.details["sub_calls"] == {"requests": 2, "input": 1_000, "output": 20}
    assert set(usage.details["models"]) == {"llm/scripted", "llm/small"}


def test_a_child_run_is_counted_and_shown(said: Said, wrapped: llm.Model) -> None:
    said.steps = [
        cell("FINAL(rlm_query('inner question', context='inner text'))"),
        cell("FINAL(context.upper())"),
    ]
    response = wrapped.prompt("?", max_depth=2)
    assert response.text() == "INNER TEXT"
    reasoning = "".join(part.text for part in parts_of(response, "ReasoningPart"))
    assert "child run: inner question" in reasoning
    details = response.usage().details
    assert details is not None
    assert details["sub_calls"]["requests"] == 1


def test_a_schema_makes_the_answer_json(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL({'count': 'many'})"), cell("FINAL({'count': 3})")]
    schema = llm.schema_dsl("count int")
    response = wrapped.prompt("?", schema=schema)
    assert json.loads(response.text()) == {"count": 3}


def test_an_answer_of_the_wrong_shape_is_an_error(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL('three')")]
    with pytest.raises(llm.ModelError, match="wrong shape"):
        wrapped.prompt("?", schema=llm.schema_dsl("count int"), max_steps=2).text()


def test_facts_of_the_run_are_on_the_response(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("print(1)")]
    response = wrapped.prompt("?", max_steps=2)
    response.text()
    facts = response.json()
    assert facts is not None
    assert facts["stop_reason"] == "steps"
    assert facts["steps"] == 2
    assert "ended: steps" in "".join(part.text for part in parts_of(response, "ReasoningPart"))


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_steps": 0}, "greater than or equal to 1"),
        ({"max_steps": "many"}, "valid integer"),
        ({"max_depth": 0}, "greater than or equal to 1"),
        ({"budget": -1}, "greater than 0"),
        ({"budget": "nan"}, "finite"),
        ({"timeout": 0}, "greater than 0"),
        ({"environment": "moon"}, "unknown environment 'moon'; environments: auto, local"),
        ({"sub_model": "nobody"}, "llm has no model 'nobody'"),
        ({"price": "cheap"}, "must be two prices"),
        ({"temperature": "hot"}, "valid number"),
        ({"unknown": 1}, "not permitted"),
    ],
)
def test_options_are_checked(wrapped: llm.Model, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wrapped.prompt("?", **options)


def test_a_budget_needs_a_price_and_is_enforced(said: Said, wrapped: llm.Model) -> None:
    with pytest.raises(llm.ModelError, match="-o price"):
        wrapped.prompt("?", budget=1).text()
    assert said.asked == []
    said.steps = [cell("llm_batch(['x'] * 50)")]
    said.usage = {"input": 1_000, "output": 1_000}
    response = wrapped.prompt("?", budget=30, price="1000,1000")
    response.text()
    details = response.usage().details
    assert details is not None
    assert 20 < details["cost_usd"] <= 30
    facts = response.json()
    assert facts is not None
    assert facts["limit"] == "cost_usd"


def test_a_run_ends_at_its_time_limit(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("import time\nprint('begun')\ntime.sleep(600)")]
    response = wrapped.prompt("?", timeout=2)
    with contextlib.suppress(llm.ModelError):
        response.text()
    facts = response.response_json
    assert facts is not None
    assert facts["limit"] == "seconds"


@pytest.mark.skipif(no_wasm is not None, reason=str(no_wasm))
def test_code_may_run_in_another_environment(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("import sys\nFINAL((len(context), sys.platform))")]
    assert wrapped.prompt("?", fragments=["abc"], environment="wasm").text() == "(3, 'wasi')"


def test_without_the_engine_the_error_says_how_to_install_it(
    wrapped: llm.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rlm.errors", "rlm.wiring.registry"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(llm.ModelError, match=r"pip install \. \./plugins/llm-rlm"):
        wrapped.prompt("?", environment="local").text()


async def test_blocking_on_the_engines_own_thread_is_refused(wrapped: llm.Model) -> None:
    async def inside() -> str:
        return wrapped.prompt("?").text()

    with pytest.raises(llm.ModelError, match="get_async_model"):
        await asyncio.to_thread(portal().call, inside)


def test_options_of_the_wrapped_model_are_passed_to_it(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("FINAL(llm_query('x'))")]
    wrapped.prompt("?", temperature=0.5, max_steps=3).text()
    assert said.options == [{"temperature": 0.5}, {"temperature": 0.5}]


def test_a_failing_provider_raises_an_error_of_llm(said: Said, wrapped: llm.Model) -> None:
    said.failure = ValueError("the provider is on holiday")
    with pytest.raises(llm.ModelError, match="on holiday"):
        wrapped.prompt("?").text()


def test_a_missing_key_is_reported_before_anything_is_sent(said: Said) -> None:
    with pytest.raises(llm.NeedsKeyException, match="llm keys set locked-provider"):
        llm.get_model("rlm/locked").prompt("?").text()
    assert said.asked == []


def test_a_key_is_sent_only_to_its_own_provider(said: Said) -> None:
    said.steps = [cell("FINAL(llm_query('x'))")]
    response = llm.get_model("rlm/locked").prompt("?", key="k-1", sub_model="small")
    assert response.text() == "a reply"
    assert said.keys == ["k-1", None]
    assert "k-1" not in json.dumps(response.json())


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        "\0\0",
        "no code at all",
        "```repl\n",
        "```repl\n(\n```",
        "\udcff",
        "FINAL(",
        "�" * 9,
    ],
)
def test_a_run_ends_whatever_its_model_replies(said: Said, wrapped: llm.Model, reply: str) -> None:
    said.steps = [reply]
    with contextlib.suppress(llm.ModelError):
        assert isinstance(wrapped.prompt("?", fragments=["x"], max_steps=2).text(), str)
    assert 1 <= len(said.asked) <= 4


async def test_cancelling_a_task_cancels_its_run(said: Said) -> None:
    said.steps = [cell("import time\nprint('begun')\ntime.sleep(600)")]
    response = llm.get_async_model("rlm/scripted").prompt("?")

    async def consume() -> None:
        async for _ in response.astream_events():
            pass

    task = asyncio.create_task(consume())
    while not said.asked:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_abandoning_the_event_stream_ends_the_run(said: Said, wrapped: llm.Model) -> None:
    said.steps = [cell("import time\ntime.sleep(600)", "Begun.")]
    events = wrapped.prompt("?").stream_events()
    assert next(events).chunk == "step 1: Begun.\n"
    events.close()
    assert chats._open_chats == {}
