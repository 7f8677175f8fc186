"""Text arrives unchanged in both directions, in large frames too."""

from rlm.testing.conformance.bench import Repl, Unmet, expect
from rlm.testing.conformance.checks import Checks

__all__ = ["checks"]

checks = Checks("unicode")

_TEXTS = {
    "lone surrogates": "\ud800 lone \udfff",
    "a surrogate pair in two pieces": "\ud83d\ude00 pair",
    "NUL": "nul\x00.",
    "CRLF and CR": "a\r\nb\rc",
    "astral and combining characters": "\U0001f600 e\u0301 \u202e",
    "separators that are not newlines": "a\u2028b\x85c\x1cd",
}


async def _is_exact(repl: Repl, text: str) -> None:
    await repl.load(text)
    repl.host.reply = lambda prompt: prompt
    code = "r = llm_query(context)\nassert r == context == context_0\nprint(r, end='')\nFINAL(r)"
    result = await repl.run(code)
    if result.error is not None:
        raise Unmet(result.error.traceback[-300:])
    expect(repl.host.asked[-1][2], [text], "the prompt that reached the host")
    expect(result.stdout, text, "what was printed")
    expect(result.submission and result.submission.text, text, "the submitted answer")
    expect(await repl.session.fetch("r"), text, "what was fetched")
    repl.host.reply = "re:{}".format


def _add(name: str, text: str) -> None:
    @checks(f"{name}: exact as context, prompt, reply, output, answer and variable")
    async def exact(repl: Repl) -> None:
        await _is_exact(repl, text)


for _name, _text in _TEXTS.items():
    _add(_name, _text)


@checks("a cell's own source can contain any valid Python text")
async def source(repl: Repl) -> None:
    await repl.shows("x = '\U0001f600é\u0416'\nx", "'\U0001f600é\u0416'")
    await repl.shows("größe = 1\ngröße", "1")


@checks("a prompt of 20 MB survives the round trip")
async def large_prompt(repl: Repl) -> None:
    await repl.shows("p = 'x' * 20_000_000\nllm_query(p) == 're:' + p", "True")
    expect([len(part) for part in repl.host.asked[-1][2]], [20_000_000], "the prompt's length")


@checks("the replies to a batch of 1,000 prompts come back in order")
async def large_batch(repl: Repl) -> None:
    code = "ps = [f'p{i}' for i in range(1000)]\nllm_query_batched(ps) == ['re:' + p for p in ps]"
    await repl.shows(code, "True")


@checks("a prompt too large to send is the cell's error, and the session continues")
async def too_large_prompt(repl: Repl) -> None:
    result = await repl.run("llm_query('x' * (70 << 20))")
    if result.error is None:
        expect([len(part) for part in repl.host.asked[-1][2]], [70 << 20], "the prompt's length")
    await repl.lives()


@checks("an answer of ten million wide characters fits")
async def large_answer(repl: Repl) -> None:
    result = await repl.run("FINAL('\\u0416' * 10**7)")
    expect(result.submission and len(result.submission.text), 10**7, "the answer's length")
