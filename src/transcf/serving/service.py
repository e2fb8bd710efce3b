"""`Service`: what one worker is made of, and the threads that work for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transcf.errors import ParameterError
from transcf.serving.auth import read_token
from transcf.serving.batching import Batcher
from transcf.serving.events.cache import EventCache
from transcf.serving.events.store import Added, Event, EventStore, events_url, open_store
from transcf.serving.item_metadata import read_item_metadata
from transcf.serving.limits import Limits
from transcf.serving.loaded_model import plain_id
from transcf.serving.metrics import Metrics
from transcf.serving.requests import RecommendRequest, answer
from transcf.serving.version_manager import ModelVersion, VersionManager
from transcf.serving.versions import Versions

log = logging.getLogger("transcf.serving")

#: Lists of one batch, and posts of one transaction.
_LISTS, _POSTS = 128, 256
#: Seconds between two looks at which version is to be served.
_PAUSE = 0.5


@dataclass(frozen=True)
class ServiceSettings:
    """What is served, and how.

    Attributes:
        model: Folder of the model.
        events: Where events are kept; None has a file beside the model.
        items: A table of items, or None.
        token_file: A file with a token, or None.
        limits: How much a worker takes on.
    """

    model: Path
    events: str | None = None
    items: Path | None = None
    token_file: Path | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def events_url(self) -> str:
        """Where events are kept."""
        return events_url(self.model, self.events)


class Service:
    """Everything that answers in one worker.

    Lists, posts of events, and all other questions have a thread each: requests of the same
    moment become one matrix product or one transaction, and a long question holds up no list.

    Args:
        settings: What is served.

    Raises:
        TransCFError: It cannot be served; the sentence says why.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        """Read the model, the items and the events."""
        self.settings = settings
        self.token = read_token(settings.token_file)
        versions = Versions(settings.model.absolute())
        versions.check()
        facts = {} if settings.items is None else read_item_metadata(settings.items)
        self._written: EventStore = open_store(settings.events_url)
        self._read = open_store(settings.events_url)
        self.recent = EventCache(self._read)
        self.shelf = VersionManager(versions, facts, self.recent)
        self.recent.begin(self.shelf.desk.served.after)
        self.metrics = Metrics()
        self._lists = Batcher(self._answer, _LISTS, "lists")
        self._posts = Batcher(self._store, _POSTS, "events")
        self._others: Batcher[Callable[[], Any], Any] = Batcher(run_each, 1, "others")
        self._watch: asyncio.Task[None] | None = None

    # -- what routes ask for ---------------------------------------------------------------------

    async def lists(self, ask: RecommendRequest) -> bytes:
        """Answer a request for lists, together with others of the same moment."""
        if ask.explain:  # takes its time
            found = await self.ask(lambda desk, recent: answer(desk.served, recent, [ask]))
            explained: bytes = found[0]
            return explained
        return await self._lists.ask(ask)

    async def ask(self, question: Callable[[ModelVersion, EventCache], Any]) -> Any:
        """Answer any other question from one version and all events that are there by now."""

        def run() -> Any:
            self.recent.update()
            return question(self.shelf.desk, self.recent)

        return await self._others.ask(run)

    async def post(self, events: Sequence[Event]) -> Added:
        """Store events; they are on disk when it returns.

        Raises:
            ParameterError: An id is of another kind than those of the model.
        """
        self._check_kinds(events)
        added = await self._posts.ask(events)
        self.metrics.events.labels("stored").inc(added.stored)
        self.metrics.events.labels("repeated").inc(added.repeated)
        return added

    def _check_kinds(self, events: Sequence[Event]) -> None:
        served = self.shelf.desk.served
        for ids, what in ((served.users, "user"), (served.items, "item")):
            if ids.is_text:
                continue
            for event in events:
                value = getattr(event, what)
                if not isinstance(plain_id(ids, value), int):
                    raise ParameterError(
                        f"{what} ids of this model are integers, and {value[:80]!r} is none."
                    )

    # -- what the threads do ---------------------------------------------------------------------

    def _answer(self, asks: Sequence[RecommendRequest]) -> list[bytes | Exception]:
        self.metrics.batches.observe(len(asks))
        self.recent.update()
        served = self.shelf.desk.served
        try:
            return [*answer(served, self.recent, asks)]
        except Exception:  # of one of them: the others have nothing to do with it
            alone = (lambda ask=ask: answer(served, self.recent, [ask])[0] for ask in asks)
            return run_each(list(alone))

    def _store(self, posts: Sequence[Sequence[Event]]) -> list[Added]:
        return self._written.add(posts)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to look for new versions."""
        self.metrics.version.set(self.shelf.desk.served.version)
        self._watch = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_PAUSE)
            refused = len(self.shelf.refused)
            try:
                await asyncio.to_thread(self.shelf.look)
            except Exception:
                log.exception("Looking for a new version failed")
            self.metrics.version.set(self.shelf.desk.served.version)
            self.metrics.refused_versions.inc(max(0, len(self.shelf.refused) - refused))

    async def stop(self) -> None:
        """Finish what is being done, and let go of everything."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the threads when they have finished, and let go of the events."""
        for batcher in (self._lists, self._posts, self._others):
            batcher.close()
        self._written.close()
        self._read.close()


def run_each(questions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Ask one question after the other; what one raises is its own answer."""
    answers: list[Any] = []
    for question in questions:
        try:
            answers.append(question())
        except Exception as error:
            answers.append(error)
    return answers


def events_of(sent: Sequence[Any]) -> list[Event]:
    """Return what was sent as events; those without a time happen now."""
    now = time.time()
    return [
        Event(
            str(one.user),
            str(one.item),
            now if one.time is None else one.time,
            one.rating,
            one.key,
        )
        for one in sent
    ]
