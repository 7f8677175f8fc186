"""The namespace: every published name exists, and cells can't lose those that are restored."""

from rlm.testing.conformance.bench import Repl, expect
from rlm.testing.conformance.checks import Checks
from rlm.worker.repl_names import REPL_NAMES

__all__ = ["checks"]

checks = Checks("names")


@checks("every published name exists", fresh=True)
async def every_name(repl: Repl) -> None:
    await repl.load([], "history")
    names = [entry.name for entry in REPL_NAMES]
    await repl.shows(f"[name for name in {names!r} if name not in globals()]", "[]")


@checks("the usual modules are imported, and are not the user's variables", fresh=True)
async def preloaded(repl: Repl) -> None:
    used = "re.sub('a', 'b', 'a'), json.dumps([1]), math.floor(1.5), Counter('aab')['a']"
    await repl.shows(f"{used}, defaultdict(int)['x']", "('b', '[1]', 1, 2, 0)")
    await repl.shows("SHOW_VARS()", "(no variables yet)")
    result = await repl.run("from collections import Counter\njson = 'mine'")
    expect(list(result.new_variables), ["json"], "the variables reported as new")
    await repl.shows("json", "'mine'")


@checks("tools are available by name, with their descriptions")
async def tools_by_name(repl: Repl) -> None:
    await repl.shows("lookup.__name__, lookup.__doc__", "('lookup', 'does lookup')")


@checks("call functions, finals and tools are restored before each cell", fresh=True)
async def restored(repl: Repl) -> None:
    await repl.load("original")
    names = [entry.name for entry in REPL_NAMES if entry.restored] + ["lookup"]
    await repl.run("\n".join(f"{name} = 'rebound'" for name in names))
    await repl.shows(f"[name for name in {names!r} if globals()[name] == 'rebound']", "[]")
    await repl.run("del llm_query, FINAL")
    await repl.shows("context_0, llm_query('a')", "('original', 're:a')")


@checks("for every other name the user's binding wins", fresh=True)
async def users_binding_wins(repl: Repl) -> None:
    await repl.load("original")
    names = ["context", "answer", "P", "ctx", "peek", "tail", "budget", "vote", "history"]
    result = await repl.run("\n".join(f"{name} = 'rebound'" for name in names))
    expect(sorted(result.new_variables), sorted(names), "the variables reported as new")
    await repl.shows(f"[name for name in {names!r} if globals()[name] != 'rebound']", "[]")
    await repl.shows("context_0", "'original'")


@checks("a cell can't break Python for the next one", fresh=True)
async def python_is_restored(repl: Repl) -> None:
    for code in ("__builtins__ = None", "del __builtins__", "globals().clear()", "__name__ = 1"):
        await repl.run(code)
        await repl.shows("len('abc'), __name__", "(3, '__main__')")


@checks("the namespace is the real __main__, so classes pickle and sources are found")
async def real_main(repl: Repl) -> None:
    code = "import inspect, pickle\nclass Point: pass\ndef double(x):\n    return 2 * x\n"
    await repl.run(code)
    await repl.shows("type(pickle.loads(pickle.dumps(Point()))) is Point", "True")
    await repl.shows("print(inspect.getsource(double))", "def double(x):\n    return 2 * x\n")
    await repl.shows("import __main__\n__main__.double is double", "True")


@checks("new, changed and deleted variables are reported", fresh=True)
async def variables(repl: Repl) -> None:
    first = await repl.run("import os\nrows = [1]; text = 'abc'; _private = 1\ndef f(): pass")
    expect(
        first.new_variables, {"rows": "list[1]", "text": "str[3]", "f": "function"}, "new variables"
    )
    second = await repl.run("rows.append(2); more = ()")
    expect(second.new_variables, {"more": "tuple[0]"}, "new variables of the second cell")
    expect(second.changed_variables, {"rows": "list[2]"}, "changed variables")
    expect(repl.session.variables, ("rows", "text", "f", "more"), "session.variables")
    await repl.run("del rows")
    expect("rows" in repl.session.variables, False, "a deleted variable in session.variables")


@checks("SHOW_VARS lists the user's variables", fresh=True)
async def show_vars(repl: Repl) -> None:
    await repl.shows("SHOW_VARS()", "(no variables yet)")
    await repl.run("rows = [1, 2]; name = 'x'")
    await repl.shows("print(SHOW_VARS())", "rows: list[2]\nname: str[1]")


@checks("fetch returns the text of a variable, or None if there is none", fresh=True)
async def fetch(repl: Repl) -> None:
    await repl.run("rows = [1]\nclass Bad:\n    def __str__(self): return 1 / 0\nbad = Bad()")
    expect(await repl.session.fetch("rows"), "[1]", "fetch('rows')")
    expect(await repl.session.fetch("missing"), None, "fetch of a missing variable")
    expect(await repl.session.fetch("bad"), None, "fetch of a value without text")


@checks("vote and budget answer")
async def vote_and_budget(repl: Repl) -> None:
    await repl.shows("vote(['a', 'b', 'B '])", "'b'")
    await repl.shows("budget()", "{'calls': 7}")
