"""Runs in the reference's words: for its loggers, and for people with `verbose=True`."""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlm._util.notebook import kernel_shell
from rlm.compat.attributes import ReferenceAttributes
from rlm.compat.types import CodeBlock, Completion, REPLResult, RLMIteration, RLMMetadata
from rlm.compat.values import CellValues
from rlm.events import Compacted, Event, RunEnded, RunStarted
from rlm.logger import RLMLogger
from rlm.logger.rows import TrajectoryBuilder
from rlm.protocols import Recorder
from rlm.wiring.listeners import progress_recorder

if TYPE_CHECKING:  # It imports rich, which most programs never need.
    from rlm.compat.verbose import VerbosePrinter

__all__ = ["IterationRecorder", "announce", "iteration_of"]

Row = dict[str, Any]
_log = logging.getLogger("rlm")
LIMIT_NAMES = {"seconds": "timeout", "tokens": "tokens", "calls": "tokens", "errors": "errors"}


@runtime_checkable
class ReferenceLogger(Protocol):
    """What the reference calls on a logger."""

    def log_metadata(self, metadata: RLMMetadata) -> None: ...

    def log(self, iteration: RLMIteration) -> None: ...


def iteration_of(row: Mapping[str, Any]) -> RLMIteration:
    """Return a row as a value of the reference."""
    blocks = [CodeBlock(block["code"], _result(block["result"])) for block in row["code_blocks"]]
    return RLMIteration(
        prompt=row["prompt"],
        response=row["response"],
        code_blocks=blocks,
        final_answer=row["final_answer"],
        iteration_time=row["iteration_time"],
    )


def _result(row: Mapping[str, Any]) -> REPLResult:
    return REPLResult(
        stdout=row["stdout"],
        stderr=row["stderr"],
        locals=row["locals"],
        execution_time=row["execution_time"],
        rlm_calls=[Completion.from_dict(call) for call in row["rlm_calls"]],
        final_answer=row["final_answer"],
    )


class IterationRecorder:
    """A recorder that hands each complete iteration of a root run to listeners.

    Several runs may be in progress at once: their iterations are kept apart.
    """

    def __init__(
        self,
        on_iteration: Callable[[RLMIteration, int], None],
        on_start: Callable[[], None] | None = None,
        on_event: Callable[[Event, int], None] | None = None,
        values: CellValues | None = None,
    ) -> None:
        self._values = None if values is None else values.after
        self._on_iteration = on_iteration
        self._on_start = on_start
        self._on_event = on_event
        self._trees: dict[str, TrajectoryBuilder] = {}
        self._root_of: dict[str, str] = {}
        self._lock = threading.Lock()

    def record(self, event: Event) -> None:
        with self._lock:
            root = self._root_of.get(event.run_id)
            if isinstance(event, RunStarted):
                root = self._root_of.get(event.parent_id or "", event.run_id)
                self._root_of[event.run_id] = root
                self._begin(event, root)
            if root is None or root not in self._trees:
                return
            tree = self._trees[root]
            tree.add(event)
            if event.run_id == root and self._on_event is not None:
                self._on_event(event, tree.steps)
            if isinstance(event, RunEnded) and event.run_id == root:
                del self._trees[root]
                self._root_of = {run: its for run, its in self._root_of.items() if its != root}

    def _begin(self, event: RunStarted, root: str) -> None:
        if event.run_id != root:
            return
        if self._on_start is not None:
            self._on_start()
        self._trees[root] = TrajectoryBuilder(self._tell, self._values)

    def _tell(self, row: Row) -> None:
        self._on_iteration(iteration_of(row), row["iteration"])


def announce(rlm: ReferenceAttributes) -> tuple[Recorder, ...]:
    """Log and show how an object is configured; return the recorders that report its runs.

    They call the methods of the reference's loggers and printer. In our own spelling, `verbose`
    prints plain lines instead.
    """
    more: list[Recorder] = []
    logger = rlm.logger
    if rlm.spelling.is_reference and logger is not None:
        rlm.runner.resources.after_cell = rlm.cell_values = CellValues()
    if isinstance(logger, RLMLogger):
        logger.settle_format("reference" if rlm.spelling.is_reference else "events")
    _warn_of_unknown_prices(rlm)
    if rlm.spelling.is_reference and rlm.spelling.given.get("verbose"):
        more.append(_shown(rlm))
    if isinstance(logger, ReferenceLogger) and _wants_rows(logger):
        logger.log_metadata(rlm.reference_metadata)
        clear = getattr(logger, "clear_iterations", None)
        values = rlm.cell_values
        more.append(IterationRecorder(lambda each, _: logger.log(each), clear, values=values))
    return tuple(more)


def _warn_of_unknown_prices(rlm: ReferenceAttributes) -> None:
    """Warn, once for each object, that `max_budget` can't be enforced if a price is unknown."""
    if rlm.config.call_rules.requires_prices or rlm.max_budget is None:
        return
    resources = rlm.runner.resources
    names = [resources.model, resources.sub_model, *resources.models]
    unknown = [
        name
        for name, each in zip(names, rlm.spelling.backends, strict=True)
        if not each.is_free and not each.states_cost and resources.info(name).price is None
    ]
    if unknown:
        _log.warning(
            "max_budget does not count the cost of %s, because its price is unknown: pass "
            "prices={%r: (input, output)} in US dollars per million tokens, or limit max_tokens",
            ", ".join(dict.fromkeys(unknown)),
            unknown[0],
        )


def _wants_rows(logger: Any) -> bool:
    """Return whether a logger is called as the reference calls it.

    Our own is, if it writes rows or if a subclass overrides the methods that receive them.
    """
    if not isinstance(logger, RLMLogger):
        return True
    own = (RLMLogger.log, RLMLogger.log_metadata)
    return logger.format == "reference" or (type(logger).log, type(logger).log_metadata) != own


def _shown(rlm: ReferenceAttributes) -> Recorder:
    """Return what shows the runs: panels in a terminal, an output that changes in a notebook."""
    if kernel_shell() is not None:
        return progress_recorder()
    from rlm.compat.verbose import VerbosePrinter

    printer = VerbosePrinter()
    printer.print_metadata(rlm.reference_metadata)
    return _shown_by(printer)


def _shown_by(printer: "VerbosePrinter") -> IterationRecorder:
    def show(event: Event, steps: int) -> None:
        if isinstance(event, Compacted):
            printer.print_compaction()
        elif isinstance(event, RunEnded):
            _show_end(printer, event, steps)

    return IterationRecorder(printer.print_iteration, None, show)


def _show_end(printer: "VerbosePrinter", event: RunEnded, steps: int) -> None:
    usage = event.usage
    if event.limit == "cost_usd":
        printer.print_limit_exceeded("budget", event.detail)
    elif event.stop_reason in {"limit", "cancelled", "error"}:
        name = LIMIT_NAMES.get(event.limit or "", event.stop_reason)
        printer.print_limit_exceeded(name, event.detail)
    if event.answer is not None:
        printer.print_final_answer(event.answer)
    total: dict[str, Any] = {
        "total_input_tokens": usage.input_tokens,
        "total_output_tokens": usage.output_tokens,
    }
    cost = {} if usage.cost_usd is None else {"total_cost": usage.cost_usd}
    summary = {"model_usage_summaries": {"": total}, **cost}
    printer.print_summary(steps, event.seconds, summary)
