"""Looks at a job while somebody watches, and tells each watcher what has changed.

Every section of a snapshot has the number of the look that changed it last. A watcher remembers the
number up to which it has been told, and gets the sections with greater ones: one that is slow gets
fewer and larger updates, nobody's updates are kept for it, and one that has just come gets all.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

from msgspec import Raw, Struct
from msgspec.structs import replace

from catchment.model import records
from catchment.ui.alerts import Alerts
from catchment.ui.watched import WatchedJob

PERIOD = 1.0
"""Seconds between looks..."""
SHARE = 0.02
"""...or more, so that looking takes no more than this share of a core."""
WATCHERS = 32
"""Pages that may watch at once."""
BEAT = 5.0
"""Seconds after which a watcher is told that nothing has changed, so that a lost one is noticed."""

_REMEMBERED = 1000
"""Looks for which it is remembered that a section has gone."""

log = logging.getLogger("catchment.ui")


class Update(Struct, frozen=True):
    """What has changed."""

    look: int
    at: int
    """When it was looked, in microseconds since 1970."""
    set: dict[str, Raw]
    gone: list[str]


class Feed:
    """The sections of a job's last snapshot, renewed while there are watchers."""

    def __init__(self, job: WatchedJob, period: float = PERIOD) -> None:
        self.job = job
        self.watchers = 0
        self.looks = 0
        self._period = period
        self._alerts = Alerts()
        self._sections: dict[str, tuple[int, bytes | None]] = {}
        self._at = 0
        self._news = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def updates(self) -> AsyncIterator[Update | None]:
        """All sections, then what changes; None now and then, while nothing does."""
        self.watchers += 1
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        seen = 0
        try:
            while not self._closed:
                news = await self._newer(seen)
                if news:
                    update = self._since(seen)
                    seen = update.look
                    yield update
                else:
                    yield None
        finally:
            self.watchers -= 1

    async def close(self) -> None:
        """Ends all streams."""
        async with self._news:
            self._closed = True
            self._news.notify_all()

    def end(self) -> None:
        """Ends all streams, from another thread."""
        self._closed = True
        if self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self.close(), self._loop)

    async def _newer(self, seen: int) -> bool:
        """Waits until something is newer than a look; False: nothing is, for a while."""

        def newer() -> bool:
            return self._closed or any(look > seen for look, _ in self._sections.values())

        try:
            async with asyncio.timeout(BEAT), self._news:
                await self._news.wait_for(newer)
        except TimeoutError:
            return False
        return not self._closed

    def _since(self, seen: int) -> Update:
        new = {name: part for name, (look, part) in self._sections.items() if look > seen}
        set_ = {name: Raw(part) for name, part in new.items() if part is not None}
        gone = [name for name, part in new.items() if part is None] if seen else []
        return Update(self.looks, self._at, set_, gone)

    async def _watch(self) -> None:
        while self.watchers and not self._closed:
            began, used = time.perf_counter(), 0.0
            try:
                used = await self.look()
            except Exception:  # a look that fails must not end the page
                log.exception("the job could not be looked at")
            took = time.perf_counter() - began
            await asyncio.sleep(max(self._period - took, used / SHARE - took, 0.05))

    async def look(self) -> float:
        """Looks once, and notes what has changed; the seconds of a core that it took."""
        found, used = await asyncio.to_thread(self._sections_now)
        sections: dict[str, bytes | None] = {**found}
        for name, (_, part) in self._sections.items():
            if part is not None and name not in sections:
                sections[name] = None
        async with self._news:
            self.looks += 1
            self._at = time.time_ns() // 1000
            for name, part in sections.items():
                if name not in self._sections or self._sections[name][1] != part:
                    self._sections[name] = (self.looks, part)
            self._forget_gone()
            self._news.notify_all()
        return used

    def _sections_now(self) -> tuple[dict[str, bytes], float]:
        began = time.thread_time()
        found = self.job.look()
        sections = replace(found, alerts=self._alerts.of(found)).sections()
        return sections, time.thread_time() - began

    def _forget_gone(self) -> None:
        """Forgets sections that have been gone for so long that every watcher knows."""
        old = self.looks - _REMEMBERED
        held = self._sections.items()
        self._sections = {n: (look, part) for n, (look, part) in held if part or look >= old}


def event(update: Update | None) -> bytes:
    """An update as a server-sent event.

    >>> event(None)
    b': nothing new\\n\\n'
    """
    if update is None:
        return b": nothing new\n\n"
    return b"data: " + records.encode(update) + b"\n\n"
