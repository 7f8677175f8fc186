"""A saved chat continues where it was: turns, contexts, variables."""

import asyncio
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm import RLM, CallRefused, ConfigError, ScriptedClient
from rlm.chat import ChatStorage, Spending
from rlm.chat.file import SavedFile
from rlm.chat.inside import PRELOADED_MODULES
from rlm.environments.local import LocalEnvironment
from rlm.messages import Request
from rlm.worker.namespace import PRELOADED
from tests.picture_samples import png


def code(text: str) -> str:
    return f"```repl\n{text}\n```"


def first_message(request: Request) -> str:
    return str(request.messages[1].content)


async def saved(path: Path, *script: str, context: Any = "abc", **more: Any) -> list[str]:
    """Save a chat after these turns; return notices about what could not be saved."""
    one = RLM(ScriptedClient([*script]), **more)
    chat = one.chat(context)
    for _ in script:
        await chat.aask("A question?")
    await chat.asave(path)
    await chat.aclose()
    await one.aclose()
    return chat.notices


async def asked(path: Path, *script: str, **more: Any) -> tuple[str, ScriptedClient]:
    """Load it in another object, run these steps in one turn, and return the answer."""
    client = ScriptedClient([*script])
    one = RLM(client, **more)
    chat = one.chat(load=path)
    answer = (await chat.aask("Another?")).answer
    await chat.aclose()
    await one.aclose()
    return str(answer), client


async def evaluated(path: Path, made: str, expression: str) -> str:
    assert await saved(path, code(f"{made}\nFINAL(0)")) == []
    return (await asked(path, code(f"FINAL({expression})")))[0]


async def test_turns_contexts_and_variables_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    one = RLM(ScriptedClient([code("n = len(context)\nFINAL(n)"), code("FINAL(context_1)")]))
    chat = one.chat("abc")
    await chat.aask("How long?")
    await chat.aask("And this?", ["x", "y"])
    before = chat.turns, chat.summaries, chat.usage, chat.contexts
    await chat.asave(path)
    await chat.aclose()
    script = code("FINAL([n, context, context_0, context_1, context_2, history])")
    client = ScriptedClient([script])
    two = RLM(client)
    chat = two.chat(load=path)
    assert (chat.turns, chat.summaries, chat.usage, chat.contexts) == before
    result = await chat.aask("Everything?", b"\0bytes")
    expected = [3, "abc", "abc", ["x", "y"], b"\0bytes", before[0]]
    assert result.answer == str(expected)
    assert "Earlier query: And this?" in first_message(client.requests[0])
    await chat.aclose()
    for each in (one, two):
        await each.aclose()


@pytest.mark.parametrize(
    ("made", "expression", "answer"),
    [
        ("s = [1]\na, b = {'s': s}, {'s': s}", "a['s'] is b['s'] is s", "True"),
        ("import math as m, os.path\nfrom json import dumps", "[dumps(m.floor(2.5))]", "['2']"),
        ("def f(x):\n    return x + 1\ng = f", "[f(1), g is f]", "[2, True]"),
        ("def f(x, seen={}):\n    seen[x] = 1\nf(7)", "f.__defaults__", "({7: 1},)"),
        ("LIMIT = 3\nclass A:\n    most = LIMIT\na = A()", "a.most", "3"),
        ("class A:\n    pass\nclass B(A):\n    pass\nb = [B()]", "isinstance(b[0], A)", "True"),
        ("from collections import namedtuple\nP = namedtuple('P', 'x')\np = P(1)", "p", "P(x=1)"),
        ("import functools\n@functools.lru_cache\ndef f(x):\n    return x", "f(3)", "3"),
        ("f = lambda x: x * 2", "f(4)", "8"),
        ("if True:\n    def f():\n        return 'in a block'", "f()", "in a block"),
        ("async def f():\n    return 5", "await f()", "5"),
        ("import re\nrule = re.compile('a+')", "rule.findall('aab')", "['aa']"),
        ("lone = '\\ud800'", "ascii(lone)", r"'\ud800'"),
        ("_hidden = 3", "_hidden", "3"),
        ("context = 'another'", "[context, context_0]", "['another', 'abc']"),
        ("f = print; f = 3", "f", "3"),
        ("def f(): return 1\ndef f(): return 2", "f()", "2"),
        (
            "def twice(f):\n    return lambda: 2 * f()\n@twice\ndef f():\n    return 4",
            "f()",
            "8",
        ),
    ],
)
async def test_values_made_by_cells_are_restored(
    tmp_path: Path, made: str, expression: str, answer: str
) -> None:
    assert await evaluated(tmp_path / "chat.rlm", made, expression) == answer


async def test_contexts_are_not_saved_again_among_the_variables(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    await saved(path, code("whole = [context, P]\nFINAL(0)"), context="long " * 100_000)
    with_it = SavedFile(path)
    assert 0 < with_it.variables().size_bytes < 1_000
    with_it.close()
    assert (await asked(path, code("FINAL(whole[0] is whole[1] is context)")))[0] == "True"


async def test_a_loaded_chat_can_be_saved_again(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    made = "class A:\n    def f(self):\n        return 1\na = A()\nFINAL(0)"
    await saved(path, code(made))
    for _ in range(2):
        one = RLM(ScriptedClient([code("FINAL(a.f())")]))
        chat = one.chat(load=path)
        assert (await chat.aask("q")).answer == "1"
        await chat.asave(path)
        await chat.aclose()
        await one.aclose()
    file = SavedFile(path)
    file.close()
    assert len(file.about.turns) == 3


async def test_variables_no_turn_has_used_are_saved_again_too(tmp_path: Path) -> None:
    path, again = tmp_path / "chat.rlm", tmp_path / "again.rlm"
    await saved(path, code("n = 41\nFINAL(0)"))
    one = RLM(ScriptedClient([]))
    chat = one.chat(load=path)
    assert list(await chat.avariables()) == ["n"]
    await chat.asave(again)
    await chat.aclose()
    await one.aclose()
    assert (await asked(again, code("FINAL(n + 1)")))[0] == "42"


async def test_values_that_cannot_be_saved_are_named_to_caller_and_model(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    made = (
        "good = [1]\nlines = (line for line in 'ab')\nhandle = open('/dev/null')\n"
        "def make():\n    x = 1\n    return lambda: x\ninner = make()\nFINAL(0)"
    )
    notices = await saved(path, code(made))
    assert len(notices) == 1
    assert all(name in notices[0] for name in ("lines (", "handle (", "inner ("))
    answer, client = await asked(path, code("FINAL(good)"))
    assert answer == "[1]"
    told = [line for line in first_message(client.requests[0]).splitlines() if "new REPL" in line]
    assert len(told) == 1
    assert told[0].endswith("lines, handle, inner. Rebuild what you need.")


async def test_a_value_that_cannot_be_unpickled_loses_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    made = (
        "class Odd(Exception):\n    def __init__(self, a, b):\n        super().__init__(a)\n"
        "odd = Odd(1, 2)\neven = 2\nFINAL(0)"
    )
    notices = await saved(path, code(made))
    assert "odd (TypeError" in notices[0]
    assert (await asked(path, code("FINAL([even, Odd(3, 4)])")))[0] == "[2, Odd(3)]"


async def test_a_chat_without_any_turn_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    one = RLM(ScriptedClient([]))
    chat = one.chat({"a": "\ud800", "b": "two"})
    await chat.asave(path)
    await chat.aclose()
    await one.aclose()
    assert (await asked(path, code("FINAL(ascii(context))")))[0] == r"{'a': '\ud800', 'b': 'two'}"


async def test_contexts_of_every_kind_are_restored_exactly(tmp_path: Path) -> None:
    path, folder = tmp_path / "chat.rlm", tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\r\nbeta\n" * 20_000, "utf-8")
    (folder / "b.txt").write_text("ß" * 1_000, "utf-8")
    values: list[Any] = ["\ud800 lone \r\n", b"\xff\0", [1, {"x": None}], folder]
    one = RLM(ScriptedClient([]))
    chat = one.chat()
    for value in values:
        await chat.aadd_context(value)
    await chat.asave(path)
    await chat.aclose()
    (folder / "a.txt").write_text("something else")
    script = (
        "import hashlib\nd = {k: hashlib.sha256(v.encode()).hexdigest()[:8] "
        "for k, v in sorted(context_3.items())}\n"
        "FINAL([ascii(context), context_1, context_2, d])"
    )
    answer, _ = await asked(path, code(script))
    await one.aclose()
    assert answer.startswith(r"""["'\\ud800 lone \\r\\n'", b'\xff\x00', [1, {'x': None}], {'""")
    assert answer.count("a.txt") == answer.count("b.txt") == 1
    original = ("alpha\r\nbeta\n" * 20_000).encode()
    assert hashlib.sha256(original).hexdigest()[:8] in answer


async def test_pictures_are_saved_too(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    await saved(path, code("FINAL(0)"), context=png())
    script = (code("FINAL(llm_query('What?', images=['context']))"), "a dot")
    answer, client = await asked(path, *script)
    assert answer == "a dot"
    assert "image" in str(client.requests[1].messages[1].content)


async def test_the_file_is_replaced_only_when_complete(tmp_path: Path) -> None:
    path, gone = tmp_path / "chat.rlm", tmp_path / "gone.txt"
    await saved(path, code("n = 1\nFINAL(n)"))
    before = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    gone.write_text("will change")
    one = RLM(ScriptedClient([]))
    chat = one.chat(gone)
    await chat.aadd_context("so that the first is stored")
    gone.write_text("has changed, and is longer")
    with pytest.raises(ConfigError, match="changed"):
        await chat.asave(path)
    with pytest.raises(ConfigError, match="can't be saved"):
        await chat.asave(tmp_path / "no such folder" / "chat.rlm")
    await chat.aclose()
    await one.aclose()
    assert path.read_bytes() == before
    assert _names_in(tmp_path) == ["chat.rlm", "gone.txt"]


def _names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def test_a_chat_can_be_saved_to_the_file_it_was_loaded_from(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    await saved(path, code("FINAL(0)"), context="first " * 100_000)
    one = RLM(ScriptedClient([code("import os; os._exit(1)"), code("FINAL(context[:5])")]))
    chat = one.chat(load=path)
    await chat.asave(path)
    path.unlink()
    assert (await chat.aask("A worker that dies is fed from the file again.")).answer == "first"
    await chat.aclose()
    await one.aclose()


def test_a_program_that_is_killed_after_saving_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    program = (
        "import os, signal\n"
        "from rlm import RLM, ScriptedClient\n"
        f"one = RLM(ScriptedClient([{code('n = [1, 2]' + chr(10) + 'FINAL(n)')!r}]))\n"
        "chat = one.chat('abc')\nchat.ask('q')\n"
        f"chat.save({str(path)!r})\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, env=dict(os.environ))
    assert done.returncode == -9
    with RLM(ScriptedClient([code("FINAL([n, context])")])) as one, one.chat(load=path) as chat:
        assert chat.turns == [{"query": "q", "answer": "[1, 2]"}]
        assert chat.ask("And now?").answer == "[[1, 2], 'abc']"


async def test_tools_that_are_missing_are_named(tmp_path: Path) -> None:
    def look_up(word: str) -> str:
        """Look a word up."""
        return word

    path = tmp_path / "chat.rlm"
    await saved(path, code("kept = [look_up, 5]\nFINAL(look_up('a'))"), tools=[look_up])
    script = code("FINAL([kept[0] is look_up, kept[0]('b')])")
    assert (await asked(path, script, tools=[look_up]))[0] == "[True, 'b']"
    client = ScriptedClient([code("FINAL(kept[1])"), code("kept[0]('c')"), "FINAL(no)"])
    one = RLM(client)
    chat = one.chat(load=path)
    assert "this chat had tools that are now missing: look_up" in chat.notices
    assert (await chat.aask("What is left?")).answer == "5"
    assert (await chat.aask("And the tool?")).answer == "no"
    assert "look_up was a tool" in str(client.requests[2].messages[-1].content)
    await chat.aclose()
    await one.aclose()


async def test_a_file_can_be_loaded_only_into_a_new_chat(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    await saved(path, code("FINAL(0)"))
    one = RLM(ScriptedClient([]))
    chat = one.chat(load=path)
    with pytest.raises(ConfigError, match="only a new chat"):
        chat.load(path)
    await chat.aclose()
    await one.aclose()


def test_preloaded_modules_are_those_of_the_worker() -> None:
    modules = [name for name, value in PRELOADED.items() if isinstance(value, ModuleType)]
    assert modules == list(PRELOADED_MODULES)


async def test_inprocess_variables_are_neither_saved_nor_loaded(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    notices = await saved(path, code("n = 1\nFINAL(n)"), environment="inprocess")
    assert "'inprocess'" in notices[0]
    await saved(path, code("n = 1\nFINAL(n)"))
    script = code("FINAL('n' in globals())")
    answer, client = await asked(path, script, environment="inprocess")
    assert answer == "False"
    assert "could not be carried over: n." in first_message(client.requests[0])


@pytest.mark.parametrize(("says", "read"), [(None, False), (False, False), (True, True)])
async def test_a_custom_environment_must_declare_that_it_is_a_sandbox(
    tmp_path: Path, says: bool | None, read: bool
) -> None:
    class Own:
        """The local sandbox, under a name that does not reveal it."""

        name = "own"

        def __init__(self) -> None:
            self._local = LocalEnvironment()
            self.open, self.close = self._local.open, self._local.close
            if says is not None:
                self.is_sandbox = says

    path = tmp_path / "chat.rlm"
    await saved(path, code("n = 1\nFINAL(n)"))
    answer, _ = await asked(path, code("FINAL('n' in globals())"), environment=Own())
    assert answer == str(read)


def test_a_persistent_engine_can_be_saved_too(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    with RLM(ScriptedClient([code("seen = context\nFINAL(seen)")]), persistent=True) as one:
        one.completion("first", root_prompt="Say it.")
        one.conversation.save(path)
    script = code("FINAL([seen, context_1, history_0[-1]['role'], len(history_0)])")
    with RLM(ScriptedClient([script]), persistent=True) as two:
        two.conversation.load(path)
        answer = two.completion("second", root_prompt="And now?").response
    assert answer == "['first', 'second', 'assistant', 3]"
    with pytest.raises(ConfigError, match="persistent=True"), RLM(ScriptedClient([])) as plain:
        _ = plain.conversation


async def test_cancelling_a_save_still_completes_it(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    one = RLM(ScriptedClient([code("n = list(range(10**5))\nFINAL(0)"), code("FINAL(n[-1])")]))
    chat = one.chat("abc")
    await chat.aask("q")
    saving = asyncio.create_task(chat.asave(path))
    while not chat._one_turn.locked():
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    assert saving.cancelled()
    assert (await chat.aask("And now?")).answer == "99999"
    await chat.aclose()
    await one.aclose()
    assert (await asked(path, code("FINAL(n[1])")))[0] == "1"


async def test_a_dead_worker_is_reported_and_the_rest_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    one = RLM(ScriptedClient([code("n = 1\nFINAL(n)")]))
    chat = one.chat("abc")
    await chat.aask("q")
    assert chat._session is not None
    assert chat._session.worker is not None
    await chat._session.worker.close()
    await chat.asave(path)
    assert chat.notices == ["the variables could not be saved: the session was closed"]
    await chat.aclose()
    await one.aclose()
    assert (await asked(path, code("FINAL(len(history))")))[0] == "1"


async def test_if_variables_do_not_fit_the_largest_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlm.chat.variables.MAX_VARIABLES_BYTES", 100_000)
    path = tmp_path / "chat.rlm"
    made = "large = 'x' * 90_000\nlarger = 'y' * 95_000\nsmall = 'z'\nFINAL(0)"
    notices = await saved(path, code(made))
    assert notices == ["these variables could not be saved: larger (there is no room for it)"]
    assert (await asked(path, code("FINAL([len(large), small])")))[0] == "[90000, 'z']"


async def test_files_with_zip64_records_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chat.rlm"
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    monkeypatch.setattr("rlm.chat.file.LARGE_BYTES", 10)
    await saved(path, code("n = 'x' * 1_000\nFINAL(0)"), context="some text " * 100)
    assert b"PK\6\6" in path.read_bytes()
    assert (await asked(path, code("FINAL([len(n), len(context)])")))[0] == "[1000, 1000]"


@pytest.mark.heavy
def test_contexts_are_streamed_when_saved_and_loaded(tmp_path: Path) -> None:
    """Saved and loaded again in one process, whose peak is far below the size of the context."""
    program = (
        "import re, sys\nfrom pathlib import Path\nfrom rlm import RLM, ScriptedClient\n"
        "path, large = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "with RLM(ScriptedClient([])) as one:\n"
        "    with one.chat(large) as chat:\n        chat.save(path)\n"
        "    with one.chat(load=path) as chat:\n        chat.save(path)\n"
        # Not ru_maxrss: that of a new program begins with what the one that started it had.
        "status = Path('/proc/self/status').read_text()\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', status)[1]) // 1024)\n"
    )
    large = tmp_path / "large.txt"
    with large.open("w") as file:
        for _ in range(400):
            file.write("a line of a large file\n" * 45_000)  # about 1 MB
    arguments = [sys.executable, "-c", program, str(tmp_path / "chat.rlm"), str(large)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    assert (tmp_path / "chat.rlm").stat().st_size > 400_000_000
    assert int(done.stdout) < 200


async def test_missing_modules_are_reported_in_the_same_turn(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    made = "import sys, types\nsys.modules['fable'] = fable = types.ModuleType('fable')\nFINAL(0)"
    assert await saved(path, code(made)) == []
    client = ScriptedClient([code("FINAL(sys.maxsize > 0)")])
    one = RLM(client)
    chat = one.chat(load=path)
    assert (await chat.aask("q")).answer == "True"
    assert "could not be carried over: fable." in first_message(client.requests[0])
    told = "these variables could not be restored: fable (ModuleNotFoundError"
    assert [notice.startswith(told) for notice in chat.notices] == [True]
    await chat.aclose()
    await one.aclose()


async def test_usage_before_saving_counts_after_loading(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    await saved(path, code("FINAL(0)"))
    one = RLM(ScriptedClient([code("FINAL(0)")]))
    chat = one.chat(load=path, max_tokens=10)
    assert chat.usage.total_tokens > 10
    with pytest.raises(CallRefused, match="all 10 tokens of this chat are used"):
        await chat.aask("q")
    await chat.aclose()
    await one.aclose()


async def test_a_closed_chat_does_not_read_another_file_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "chat.rlm"
    await saved(path, code("FINAL(0)"))
    file = SavedFile(path)
    context = file.contexts()["context"]
    assert context.data == b"abc"
    file.close()
    file.close()
    with path.open("rb"), pytest.raises(ConfigError, match="can't be read"):
        _ = context.data


ANY = st.text(st.characters(categories=["L", "N", "Zs", "Cs", "Cc"]))


@given(st.lists(st.tuples(ANY, st.none() | ANY, st.none() | st.just("limit"))))
async def test_any_turns_come_back_unchanged(
    turns: list[tuple[str, str | None, str | None]],
) -> None:
    asked_before = [
        {"query": query, "answer": answer, **({"ended": ended} if ended else {})}
        for query, answer, ended in turns
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.rlm"
        await ChatStorage().save(path, asked_before, [], Spending(), {}, None)
        storage = ChatStorage()
        assert storage.load(path).turns == asked_before
        storage.close()
