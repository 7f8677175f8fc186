"""The scenarios and the exercise of the document, with the real command and a scripted server.

Each is done in both ways: by a model that calls the toolbox, and by a wrapped model.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from llm_command import Cli
from scripted_models import cell

from rlm.testing.fake_server import Answer, FakeServer

Serve = Callable[..., FakeServer]

SMALL = "The sky is blue.\nGrass is green.\nThe magic number is 42.\nWater is wet.\n"
LARGE = "\n".join(
    "The secret code is 87654." if number == 617 else f"Entry {number}: nothing to see."
    for number in range(1_000)
)
ANIMALS = "\n".join(
    f"{number}. A {kind} named {name}{number}."
    for number, (kind, name) in enumerate(
        [("feline", "Tom"), ("canine", "Rex"), ("parrot", "Kea")] * 10, 1
    )
)
LOG = "\n".join(
    "WARNING leaked password: hunter2-swordfish" if number == 137 else f"INFO request {number} ok"
    for number in range(200)
)
NEEDLES = {
    "small": (SMALL, "What is the magic number?", r"magic number is (\d+)", "42"),
    "large": (LARGE, "What is the secret code?", r"code is (\d+)", "87654"),
}
COUNT = "n = sum('feline' in line for line in context.splitlines())"
PRIMES = (
    "def is_prime(n):\n    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))\n"
    "primes, n = [], 2\nwhile len(primes) < 100:\n"
    "    if is_prime(n):\n        primes.append(n)\n    n += 1\nprint(sum(primes))"
)


def called(name: str, **arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"name": f"RLMToolbox_{name}", "arguments": arguments}]}


def everything_sent(server: FakeServer) -> str:
    return "\n".join(json.dumps(request.asked.body) for request in server.requests if request.asked)


def toolbox_over(cli: Cli, text: str, **more: Any) -> tuple[str, ...]:
    (cli.folder / "data.txt").write_text(text)
    given = json.dumps({"context_file": "data.txt", "sub_model": "mine", **more})
    return ("-m", "mine", "-T", f"RLMToolbox({given})")


def is_nowhere(needle: str, cli: Cli, server: FakeServer) -> None:
    """Return whether most of the context was neither sent nor stored."""
    assert needle not in everything_sent(server)
    assert needle not in cli.stored()


# -- with the toolbox -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEEDLES)
def test_a_needle_is_found_with_the_toolbox(cli: Cli, serve: Serve, name: str) -> None:
    text, question, pattern, answer = NEEDLES[name]
    code = f"import re\nn = re.search(r'{pattern}', context).group(1)\nprint(n)"
    server = serve(
        called("execute_python", code=code),
        called("submit_answer", variable_name="n"),
        Answer(reply=answer),
    )
    assert cli.ok(*toolbox_over(cli, text), question).strip() == answer
    assert [request.status for request in server.requests] == [200, 200, 200]
    assert f"call no more tools:\\n\\n{answer}" in everything_sent(server)
    is_nowhere("Entry 5:" if name == "large" else "sky is blue", cli, server)


def test_thirty_items_are_classified_with_the_toolbox(cli: Cli, serve: Serve) -> None:
    judge = (
        "items = context.splitlines()\n"
        "said = await llm_batch(prompts=[f'Is this a cat? {each}' for each in items])\n"
        "print(len(said), said.count('yes'))"
    )
    server = serve(
        called("execute_python", code=judge),
        called("execute_python", code=COUNT + "\nprint(n)"),
        called("submit_answer", variable_name="n"),
        Answer(reply="10"),
        rules=[(re.compile(r"Is this a cat\?.*feline"), "yes"), ("Is this a cat?", "no")],
    )
    given = toolbox_over(cli, ANIMALS)
    assert cli.ok(*given, "How many are cats?", "--cl", "10").strip() == "10"
    logged = cli.ok("logs", "-n", "1")
    assert "10" in logged
    assert "30 10" in everything_sent(server)


def test_the_sum_of_the_first_hundred_primes(cli: Cli, serve: Serve) -> None:
    serve(
        called("execute_python", code="from sympy import prime\nprint(prime(100))"),
        called("execute_python", code=PRIMES),
        called("submit_answer", answer="24133"),
        Answer(reply="The sum is 24133."),
    )
    box = 'RLMToolbox({"sub_model": "mine"})'
    done = cli("-m", "mine", "-T", box, "--td", "Sum of the first 100 primes?")
    assert done.code == 0
    assert done.out.strip() == "The sum is 24133."
    assert "No module named 'sympy'" in done.err
    assert "24133" in done.err


def test_the_secret_of_a_log_of_200_lines(cli: Cli, serve: Serve) -> None:
    code = "print([line for line in context.splitlines() if 'WARNING' in line])"
    server = serve(
        called("execute_python", code=code),
        called("submit_answer", answer="hunter2-swordfish"),
        Answer(reply="It is hunter2-swordfish."),
    )
    said = cli.ok(*toolbox_over(cli, LOG), "--td", "Which password leaked?")
    assert "hunter2-swordfish" in said
    is_nowhere("INFO request 7 ok", cli, server)


def test_a_conversation_continues_with_the_same_context_file(cli: Cli, serve: Serve) -> None:
    serve(
        called("execute_python", code="print(len(context))"),
        Answer(reply="one"),
        called("execute_python", code="print('again', len(context))"),
        Answer(reply="two"),
    )
    assert cli.ok(*toolbox_over(cli, LOG), "How long?").strip() == "one"
    done = cli("-c", "--td", "And again?")
    assert (done.code, done.out.strip()) == (0, "two")
    assert f"again {len(LOG)}" in done.err


def test_a_context_that_was_not_logged_is_requested_again(cli: Cli, serve: Serve) -> None:
    serve(called("execute_python", code="print(1)"), Answer(reply="one"))
    given = json.dumps({"context": "a secret text", "sub_model": "mine"})
    assert cli.ok("-m", "mine", "-T", f"RLMToolbox({given})", "How long?").strip() == "one"
    assert "a secret text" not in cli.stored()
    done = cli("-c", "And again?")
    assert done.code == 1
    assert "was not written to the logs: pass it again" in done.err


@pytest.mark.parametrize("given", ['{"context_file": "no.txt"}', '{"sandbox": "moon"}'])
def test_a_toolbox_that_cannot_be_made_is_one_line(cli: Cli, serve: Serve, given: str) -> None:
    server = serve("never")
    done = cli("-m", "mine", "-T", f"RLMToolbox({given})", "?")
    assert done.code == 1
    assert done.err.startswith("Error: ")
    assert len(done.err.splitlines()) == 1
    assert server.count == 0


# -- with a wrapped model -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NEEDLES)
def test_a_needle_is_found_by_a_wrapped_model(cli: Cli, serve: Serve, name: str) -> None:
    text, question, pattern, answer = NEEDLES[name]
    server = serve(cell(f"import re\nFINAL(re.search(r'{pattern}', context).group(1))"))
    (cli.folder / "data.txt").write_text(text)
    assert cli.ok("-m", "rlm/mine", "-f", "rlm:data.txt", question).strip() == answer
    is_nowhere("Entry 5:" if name == "large" else "sky is blue", cli, server)


def test_thirty_items_are_classified_by_a_wrapped_model(cli: Cli, serve: Serve) -> None:
    judge = (
        "items = context.splitlines()\n"
        "said = llm_batch([f'Is this a cat? {each}' for each in items])\n"
        "FINAL(said.count('yes'))"
    )
    server = serve(
        cell(judge),
        rules=[(re.compile(r"Is this a cat\?.*feline"), "yes"), ("Is this a cat?", "no")],
    )
    (cli.folder / "data.txt").write_text(ANIMALS)
    said = cli.ok("-m", "rlm/mine", "-f", "data.txt", "How many are cats?")
    assert said.strip() == "10"
    assert server.count == 31


def test_the_exercise_of_the_document_with_a_wrapped_model(cli: Cli, serve: Serve) -> None:
    serve(
        cell("from sympy import prime"),
        cell(PRIMES + "\nFINAL(sum(primes))"),
        cell("FINAL(next(l for l in context.splitlines() if 'WARNING' in l).split()[-1])"),
    )
    assert cli.ok("-m", "rlm/mine", "Sum of the first 100 primes?").strip() == "24133"
    said = cli.ok("-m", "rlm/mine", "Which password leaked?", stdin=LOG)
    assert said.strip() == "hunter2-swordfish"


# -- the toolbox by its bare name ------------------------------------------------------------------


def test_the_command_of_the_document_as_written(cli: Cli, serve: Serve) -> None:
    """`llm -T RLMToolbox`, without arguments: the first call gives the context."""
    question = "What is the magic number?"
    server = serve(
        called("execute_python", code="print(len(context))", context=SMALL),
        called("execute_python", code="n = await llm_query(prompt='Which? ' + context)\nprint(n)"),
        "the number is 42",  # the reply to llm_query
        called("submit_answer", variable_name="n"),
        "The magic number is 42.",
    )
    cli.ok("models", "default", "mine")
    assert cli.ok("-T", "RLMToolbox", question).strip() == "The magic number is 42."
    bodies = [request.asked.body for request in server.requests if request.asked]
    assert len(bodies) == 5
    offered = {tool["function"]["name"] for tool in bodies[0]["tools"]}
    assert offered == {"RLMToolbox_execute_python", "RLMToolbox_submit_answer"}
    results = [each["content"] for each in bodies[-1]["messages"] if each["role"] == "tool"]
    assert [str(len(SMALL)) in results[0], "the number is 42" in results[1]] == [True, True]
    assert len(results) == 3
    assert "tools" not in bodies[2]  # what a cell asks is a plain question
    assert SMALL in str(bodies[2]["messages"][-1]["content"])


def test_a_second_turn_has_a_new_sandbox(cli: Cli, serve: Serve) -> None:
    """`llm -c` continues the conversation; the answer of the first turn is not handed in again."""
    server = serve(
        called("execute_python", code="found = 1\nprint('first')"),
        called("submit_answer", answer="one"),
        "one",
        called("execute_python", code="print('found' in globals())"),
        called("submit_answer", answer="two"),
        "two",
    )
    cli.ok("models", "default", "mine")
    assert cli.ok("-T", "RLMToolbox", "First?").strip() == "one"
    assert cli.ok("-c", "-T", "RLMToolbox", "Second?").strip() == "two"
    last = server.requests[-1].asked
    assert last is not None
    results = [each["content"] for each in last.body["messages"] if each["role"] == "tool"]
    assert "False" in results[-2]
