"""Set limits: a run that would exceed one ends early, with the best answer it has."""

from rlm import RLM, Limits, Price, ScriptedClient

PRICE = Price(input_per_million=0.25, output_per_million=2.0)
PAGE = "The ferry leaves at noon, as it always did. " * 50


def read_page(number: int) -> str:
    return f"""```repl
found = llm_query("What does page {number} say?\\n" + context[{number} - 1])
print("page {number}:", found)
```"""


def main() -> None:
    model = ScriptedClient(
        [read_page(number) for number in range(1, 51)],
        rules=[("Answer the query now", "At noon, by the pages I have read.")],
        price=PRICE,
    )
    sub_model = ScriptedClient(rules=[("", "The ferry leaves at noon.")], price=PRICE)
    limits = Limits(max_steps=50, max_cost_usd=0.03)
    with RLM(model, sub_model=sub_model, limits=limits) as rlm:
        result = rlm.ask("When does the ferry leave?", [PAGE] * 50)
    assert result.cost_usd is not None
    assert limits.max_cost_usd is not None
    print(f"allowed:  {limits.max_steps} steps, ${limits.max_cost_usd}")
    print(f"used:     {result.steps} steps, ${result.cost_usd:.4f}")
    print(f"kept:     {result.cost_usd <= limits.max_cost_usd}")
    print(f"stopped:  {result.stop_reason} ({result.limit}): {result.detail}")
    print(f"answer:   {result.answer} (from: {result.answer_source})")


if __name__ == "__main__":
    main()

# prints: allowed:  50 steps, $0.03
# prints: kept:     True
# prints: stopped:  limit (cost_usd): ...
# prints: answer:   At noon, by the pages I have read. (from: asked)
