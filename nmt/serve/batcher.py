"""One thread owns the engine; requests that arrive while it is busy go into its next batch.

So a server under load translates many sentences at a time, which is faster than one by one, and
an idle server answers at once. Translations do not depend on their neighbours in a batch.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from nmt.decoding.documents import Engine, translate_documents
from nmt.decoding.options import SearchOptions
from nmt.decoding.translation import Document

log = logging.getLogger(__name__)

# All requests of a batch are answered when its last sentence is: a bound on that wait.
BATCH_CHARACTERS = 8000


class QueueFullError(Exception):
    """As many requests wait as may."""


class ClosedError(Exception):
    """The batcher takes no more requests."""


class _Job(NamedTuple):
    texts: Sequence[str]
    options: SearchOptions
    attention: bool
    future: "Future[list[Document]]"

    @property
    def characters(self):
        return sum(map(len, self.texts))

    def may_join(self, other):
        return (self.options, self.attention) == (other.options, other.attention)


class Batcher:
    """Translates for many callers at once."""

    def __init__(self, engine: Engine, most_waiting: int):
        self._engine = engine
        self._most_waiting = most_waiting
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        # A daemon: a forced exit does not wait for a long translation.
        self._thread = threading.Thread(target=self._work, name="translate", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait; those whose caller has gone do not."""
        with self._changed:
            return sum(not job.future.cancelled() for job in self._jobs)

    @property
    def is_alive(self) -> bool:
        """Whether requests will be answered."""
        return self._thread.is_alive()

    def submit(
        self, texts: Sequence[str], options: SearchOptions, attention: bool = False
    ) -> "Future[list[Document]]":
        """Return the future of `translate_documents`; cancelling it before its turn saves work.

        Raises:
          QueueFullError: try again later.
          ClosedError: after `close`.
        """
        job = _Job(texts, options, attention, Future())
        with self._changed:
            if self._closed:
                raise ClosedError("the server is stopping")
            # Those whose caller has gone must not keep others out.
            if len(self._jobs) >= self._most_waiting:
                self._jobs = deque(each for each in self._jobs if not each.future.cancelled())
            if len(self._jobs) >= self._most_waiting:
                raise QueueFullError(f"{len(self._jobs)} requests are waiting already")
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def close(self, timeout: float = 10.0) -> None:
        """Take no more, finish what was taken, and end; give up after `timeout` seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)

    def _work(self):
        while batch := self._next_batch():
            started = [job for job in batch if job.future.set_running_or_notify_cancel()]
            if started:
                self._translate(started)

    def _next_batch(self):
        """Wait for work; return the oldest job and those that may join it; [] to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            batch, left, characters = [], [], 0
            for job in self._jobs:
                together = characters + job.characters
                if not batch or (job.may_join(batch[0]) and together <= BATCH_CHARACTERS):
                    batch.append(job)
                    characters = together
                else:
                    left.append(job)
            self._jobs = deque(left)
            return batch

    def _translate(self, batch):
        """Translate all jobs together; if that fails, each alone, so that only its own fails."""
        texts = [text for job in batch for text in job.texts]
        first = batch[0]
        try:
            documents = translate_documents(
                self._engine, texts, first.options, attention=first.attention
            )
        except Exception as error:  # whatever it is, the thread must go on
            if len(batch) > 1:
                for job in batch:
                    self._translate([job])
                return
            log.error("a translation failed", exc_info=error)
            first.future.set_exception(error)
            return
        taken = 0
        for job in batch:
            job.future.set_result(documents[taken : taken + len(job.texts)])
            taken += len(job.texts)
