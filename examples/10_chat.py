"""Ask several questions over one session: variables, contexts and turns persist."""

from rlm import RLM, ScriptedClient

JANUARY = "Ada: 40\nMira: 75\nAda: 10\n"
FEBRUARY = "Mira: 20\nNoor: 90\n"

SCRIPT = [
    """```repl
def sums(text):
    found = {}
    for line in text.splitlines():
        name, amount = line.split(": ")
        found[name] = found.get(name, 0) + int(amount)
    return found
january = sums(context)
FINAL(max(january, key=january.get))
```""",
    """```repl
february = sums(context_1)  # defined in the first turn
FINAL(sorted(set(february) - set(january)))
```""",
    """```repl
print(history)
FINAL(f"{history[0]['answer']}, with {january['Mira'] + february['Mira']} in all")
```""",
]


def main() -> None:
    model = ScriptedClient(SCRIPT)
    with RLM(model) as rlm, rlm.chat(JANUARY) as chat:
        print(chat.ask("Who paid most in January?").answer)
        print(chat.ask("Who is new in February?", FEBRUARY).answer)
        print(chat.ask("How much did the first one you named pay?").answer)
        print(len(chat.turns), "turns,", len(model.requests), "requests")


if __name__ == "__main__":
    main()

# prints: Mira
# prints: ['Noor']
# prints: Mira, with 95 in all
# prints: 3 turns, 3 requests
