"""`VerbosePrinter`: responses, code and output in panels on standard error.

What comes from models and cells is hostile: nothing in it reaches the terminal as a command.
"""

import sys
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rlm.compat.types import CodeBlock, RLMIteration, RLMMetadata
from rlm.records.recorders.console import harmless

__all__ = ["VerbosePrinter"]

MAX_SHOWN_CHARS = 20_000
"""How much of one text is shown; the rest is counted."""

MAX_PREVIEW_CHARS = 200
LIMITS = {
    "timeout": "Timeout Exceeded",
    "tokens": "Token Limit Exceeded",
    "errors": "Error Threshold Exceeded",
    "budget": "Budget Exceeded",
    "cancelled": "Execution Cancelled",
    "error": "Run Failed",
}


def _safe(value: Any, most: int = MAX_SHOWN_CHARS) -> str:
    """Return a value as harmless text, cut."""
    text = value if isinstance(value, str) else str(value)
    left_out = len(text) - most
    return harmless(text[:most]) + (f"… ({left_out:,} more characters)" if left_out > 0 else "")


class VerbosePrinter:
    """Shows what a run does, on standard error; without `enabled`, every method does nothing."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.console: Console | None = Console(file=sys.stderr) if enabled else None

    def print_metadata(self, metadata: RLMMetadata) -> None:
        """Show how an `RLM` is configured."""
        others = list(metadata.other_backends or []) or None
        self.print_header(
            metadata.backend,
            metadata.root_model,
            metadata.environment_type,
            metadata.max_iterations,
            metadata.max_depth,
            others,
        )

    def print_header(
        self,
        backend: str,
        model: str,
        environment: str,
        max_iterations: int,
        max_depth: int,
        other_backends: list[str] | None = None,
    ) -> None:
        """Show the configuration in a panel."""
        rows = {
            "Backend": backend,
            "Model": model,
            "Environment": environment,
            "Max Iterations": max_iterations,
            "Max Depth": max_depth,
        }
        if other_backends:
            rows["Sub-models"] = ", ".join(map(str, other_backends))
        self._panel("RLM", _table(rows), "blue")

    def print_iteration_start(self, iteration: int) -> None:
        self._rule(f"Iteration {iteration}")

    def print_completion(self, response: Any, iteration_time: float | None = None) -> None:
        """Show the reply of a model."""
        self._panel(_timed("LLM Response", iteration_time), Text(_safe(response)), "dim")

    def print_code_execution(self, code_block: CodeBlock) -> None:
        """Show a block of code with its output, its error and the number of its calls."""
        result = code_block.result
        parts: list[RenderableType] = [_labelled("Code:", code_block.code)]
        if result.stdout.strip():
            parts.append(_labelled("\nOutput:", result.stdout, "green"))
        if result.stderr.strip():
            parts.append(_labelled("\nError:", result.stderr, "red"))
        if result.rlm_calls:
            parts.append(Text(f"\n{len(result.rlm_calls)} sub-call(s)", style="magenta"))
        self._panel(_timed("Code Execution", result.execution_time), Group(*parts), "green")

    def print_subcall(
        self,
        model: str,
        prompt_preview: str,
        response_preview: str,
        execution_time: float | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Show a call to another model; with `metadata`, it was a child run."""
        kind = "LLM Sub-call" if metadata is None else "RLM Sub-call"
        lines = [] if metadata is None else [f"Iterations: {len(metadata.get('iterations', []))}"]
        lines.append(f"Prompt: {_safe(prompt_preview, MAX_PREVIEW_CHARS)}")
        lines.append(f"Response: {_safe(response_preview, MAX_PREVIEW_CHARS)}")
        title = _timed(f"{kind}: {_safe(model, MAX_PREVIEW_CHARS)}", execution_time)
        self._panel(title, Text("\n".join(lines)), "magenta")

    def print_iteration(self, iteration: RLMIteration, iteration_num: int) -> None:
        """Show a whole iteration: the reply, its blocks, and the calls that they made."""
        if not self.enabled:
            return
        self.print_iteration_start(iteration_num)
        self.print_completion(iteration.response, iteration.iteration_time)
        for block in iteration.code_blocks:
            self.print_code_execution(block)
            for call in block.result.rlm_calls:
                seconds = call.execution_time
                self.print_subcall(
                    call.root_model, str(call.prompt), call.response, seconds, call.metadata
                )

    def print_budget_exceeded(self, spent: float, budget: float) -> None:
        self.print_limit_exceeded("budget", f"Spent: ${spent:.6f}\nBudget: ${budget:.6f}")

    def print_limit_exceeded(self, limit_type: str, details: str) -> None:
        """Show which limit ended the run."""
        title = LIMITS.get(limit_type, f"{_safe(limit_type.title(), 100)} Limit Exceeded")
        self._panel(title, Text(_safe(details)), "red")

    def print_compaction_status(
        self, current_tokens: int, threshold_tokens: int, max_tokens: int
    ) -> None:
        """Show how near the history is to being compacted."""
        if self.console is not None:
            share = current_tokens / threshold_tokens if threshold_tokens else 0.0
            line = f"Context: {current_tokens:,} / {threshold_tokens:,} tokens ({share:.0%})"
            self.console.print(Text(line, style="dim"))

    def print_compaction(self) -> None:
        self._panel("Compaction", Text("The model's notes replace the history."), "dim")

    def print_final_answer(self, answer: Any) -> None:
        self._panel("Final Answer", Text(_safe(answer)), "yellow")

    def print_summary(
        self,
        total_iterations: int,
        total_time: float,
        usage_summary: dict[str, Any] | None = None,
    ) -> None:
        """Show what a run used."""
        if self.console is None:
            return
        used = usage_summary or {}
        models = used.get("model_usage_summaries", {}).values()
        rows: dict[str, Any] = {"Iterations": total_iterations, "Total Time": f"{total_time:.2f}s"}
        for label, name in (("Input", "total_input_tokens"), ("Output", "total_output_tokens")):
            rows[f"{label} Tokens"] = f"{sum(each.get(name, 0) for each in models):,}"
        if used.get("total_cost") is not None:
            rows["Total Cost"] = f"${used['total_cost']:.6f}"
        self._rule()
        self.console.print(_table(rows))

    def _rule(self, title: str = "") -> None:
        if self.console is not None:
            line = "─" if self.console.is_terminal else "-"
            self.console.print(Rule(Text(title, style="bold blue"), characters=line))

    def _panel(self, title: str, content: RenderableType, style: str) -> None:
        if self.console is None:
            return
        form = box.ROUNDED if self.console.is_terminal else box.ASCII
        heading = Text(title, style="bold")
        self.console.print(
            Panel(content, title=heading, title_align="left", border_style=style, box=form)
        )


def _timed(title: str, seconds: float | None) -> str:
    return f"{title}  ({seconds:.2f}s)" if seconds else title


def _labelled(label: str, text: str, style: str = "") -> Text:
    return Text.assemble((f"{label}\n", "dim"), (_safe(text).rstrip("\n"), style))


def _table(rows: dict[str, Any]) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(_safe(value)))
    return table
