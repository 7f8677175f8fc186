"""Model behaviour for the documents' programs: what a capable reader would reply."""

import re
from typing import Any

from tests.endpoint import texts


def reader(body: dict[str, Any]) -> str:
    """It looks at its task first, and then does it."""
    said = texts(body)
    if "powers of two" in said:
        return "```repl\nFINAL('\\n'.join(str(2**n) for n in range(100)))\n```"
    if "Analyze this document" in said:
        return (
            "```repl\nstream_output(f\"{context_data['user_info']['name']}: \")\n"
            "stream_output(search_web('rlm'))\nFINAL('Done.')\n```"
        )
    if "Say hello." in said:
        return "Final Answer: hello"
    return "```repl\nprint(context)\n```"


def searcher(body: dict[str, Any]) -> str:
    """Finds the needle of demo.py with code, lets a child run read it, and ends in prose."""
    said = texts(body)
    (key,) = set(re.findall(r"access code for (\w+)\?", said)) or {""}
    if "a str of 9,996" in said:
        if "CHILD SAYS" in said:
            return "Final Answer: " + said.split("CHILD SAYS ")[-1].split()[0]
        return (
            f"```repl\nline = ctx.grep({key!r})[0]\n"
            f"child = rlm_query('What is the access code for {key}?', context=line)\n"
            "print('CHILD SAYS', child)\n```"
        )
    return "```repl\nimport re\nFINAL(re.findall(r'\\d{7}', context)[-1])\n```"
