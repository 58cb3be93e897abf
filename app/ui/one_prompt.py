"""Base class of runs that decode one prompt several times in succession, with a common deadline."""

from __future__ import annotations

import time
from collections.abc import Generator
from functools import partial
from typing import ClassVar, Protocol, TypeVar

from app.engines.engines import Served
from app.ui.stream import HEARTBEAT_SECONDS, TabOrder, TabRun, Transcript, Wait, writer_of
from mars_runtime.engine.engine import EngineBusy
from mars_runtime.engine.request import Request
from mars_runtime.settings import DecodeSettings
from mars_runtime.text import Context


class PromptOrder(TabOrder, Protocol):
    """Validated values of a tab that has one prompt."""

    @property
    def prompt(self) -> str: ...

    @property
    def system(self) -> str: ...


P = TypeVar("P", bound=PromptOrder)


class PromptRun(TabRun[P]):
    """A run that submits its requests one after the other.

    is_alone: each request has the device to itself, which timing requires.
    full: the status that is shown while a request waits for a free slot.
    """

    is_alone: ClassVar[bool] = False
    full: ClassVar[str]

    def started(
        self,
        served: Served,
        name: str,
        settings: DecodeSettings,
        until: float,
        is_drawn: bool = True,
    ) -> Generator[Wait, None, Transcript | None]:
        """Submit the prompt with these settings and return the transcript, or None if the run is
        stopped or out of time.

        until: the deadline, as a value of ``time.monotonic``. If all slots are in use, the first
        request of the run raises EngineBusy; its later requests wait for a slot.
        """
        while (left := until - time.monotonic()) > 0 and not self.is_cancelled:
            try:
                return self._submit(served, name, settings, left, is_drawn)
            except EngineBusy:
                if not self.transcripts:
                    raise
            self.log.say(self.full)
            yield partial(time.sleep, HEARTBEAT_SECONDS)
        return None

    def _submit(
        self, served: Served, name: str, settings: DecodeSettings, seconds: float, is_drawn: bool
    ) -> Transcript:
        prompt, tokenizer = self.order.prompt, served.checkpoint.tokenizer
        prompt_ids = tokenizer.encode_prompt(prompt, system=self.order.system)
        context = Context(system=tokenizer.system_in_force(self.order.system))
        request = Request(prompt_ids, settings, seconds, is_checked=True, owner=self.owner)
        writer = writer_of(served, prompt, request, self.book.task(prompt), context)
        run = served.engine.submit(request, is_alone=self.is_alone)
        return Transcript(name, run, writer, is_drawn=is_drawn)
