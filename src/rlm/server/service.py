"""All parts of one server, opened and closed in the right order."""

import asyncio
import logging

from rlm.api import RLM
from rlm.errors import ConfigError
from rlm.records.journal import Archive
from rlm.records.journal.database import Lock
from rlm.server.admission import Admission
from rlm.server.answering import Answerer
from rlm.server.bodies import Bodies
from rlm.server.engines import Engines
from rlm.server.files import Files
from rlm.server.jobs import Jobs
from rlm.server.ledger import Ledger
from rlm.server.metrics import Metrics
from rlm.server.planning import Planner
from rlm.server.run_records import RunStore
from rlm.server.runs import Runs
from rlm.server.settings import Settings
from rlm.server.tokens import Tokens
from rlm.web.hosts import HostPolicy

__all__ = ["Service"]

log = logging.getLogger("rlm.server")


class Service:
    """The parts of one server, created on the event loop that they use."""

    def __init__(
        self,
        settings: Settings,
        engines: Engines,
        tokens: Tokens,
        archive: Archive,
        hosts: HostPolicy,
    ) -> None:
        self.settings = settings
        self.engines = engines
        self.tokens = tokens
        self.hosts = hosts
        self.closing = False
        _check_prices(engines, tokens)
        archive.places.prepare()
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = Lock(settings.folder / "server.lock")
        if not self._lock.take():
            raise ConfigError(
                f"process {self._lock.holder()} already serves from {settings.folder}: end it, or "
                "set RLM_STATE_DIR to another folder"
            )
        self.files = Files(settings)
        self.bodies = Bodies(settings, len(tokens.all))
        self.admission = Admission(settings)
        self.metrics = Metrics(lambda: self.admission.running, lambda: self.admission.queued)
        self.ledger = Ledger(settings.folder / "ledger.sqlite")
        self.answerer = Answerer(self.ledger, self.metrics)
        self.planner = Planner(settings, engines, self.files)
        store = RunStore(settings.folder / "runs.sqlite")
        self.runs = Runs(store, archive, self.planner, self.admission, self.answerer)
        self.jobs = Jobs(self.planner, self.answerer, self.runs.note)
        self._grace: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> "Service":
        if self.settings.resumes:
            count = await self.runs.resume_all({token.name: token for token in self.tokens.all})
            if count:
                log.info("%d runs of the last server continue", count)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.begin_to_close()
        if self._grace is not None:
            self._grace.cancel()
        self.jobs.cancel_all()
        await asyncio.gather(*self.jobs.running, return_exceptions=True)
        await self.runs.close()
        self.ledger.close()
        await self.engines.close()
        self._lock.release()

    def begin_to_close(self) -> None:
        """Accept no more requests; those in progress have `grace_seconds` left."""
        if self.closing:
            return
        self.closing = True
        self.admission.close()
        self.bodies.memory.close()
        self.runs.shut()
        loop = asyncio.get_running_loop()
        self._grace = loop.call_later(self.settings.grace_seconds, self.jobs.cancel_all)


def _check_prices(engines: Engines, tokens: Tokens) -> None:
    """Raise ConfigError if a cost budget can't be enforced because a price is unknown."""
    if all(token.max_cost_usd is None for token in tokens.all):
        return
    for model in engines.models:
        engine: RLM = engines.get(model, None)
        for name in (engine.config.model, engine.config.sub_model, *engine.config.models):
            if engine.runner.resources.info(name).price is None:
                raise ConfigError(
                    f"a token has max_cost_usd, but the price of {name} is unknown: pass "
                    "--price IN,OUT, or give tokens max_tokens instead"
                )
