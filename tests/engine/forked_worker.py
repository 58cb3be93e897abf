"""Processes that decode calls as ZeroGPU's do: forked from this one, reused while they live, with
pickled arguments, stopped at their next yield.

They are forked when the fixture is made, so no test depends on what a thread was doing at that
moment.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Generator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from mars_runtime.engine.leased.worker import Call, Decode, LeaseError, News

ABORTED = "GPU task aborted"
QUEUE_SECONDS = 10.0


class ForkedWorker:
    """One process with its own copy of everything but shared memory."""

    def __init__(self, decode: Decode) -> None:
        context = get_context("fork")
        self._pipe, far = context.Pipe()
        self._stop = context.Event()
        self.pid = os.fork()
        if not self.pid:
            self._pipe.close()
            _serve(far, self._stop, decode)
        far.close()

    def call(self, call: Call) -> Generator[News, None, None]:
        self._pipe.send_bytes(pickle.dumps(call))
        try:
            while (actual := self._received()) is not None:
                yield actual
        except GeneratorExit:
            self._stop.set()
            while self._received() is not None:
                pass
            raise

    def _received(self) -> News | None:
        try:
            actual = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise LeaseError(ABORTED) from None
        if isinstance(actual, Exception):
            raise actual
        return actual

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    @property
    def is_alive(self) -> bool:
        """Whether it takes calls: one that was killed has hung up."""
        return not (self._pipe.poll() and self._is_over())

    def _is_over(self) -> bool:
        try:
            self._pipe.recv_bytes()
        except (EOFError, OSError):
            return True
        raise AssertionError("a worker at rest says nothing")

    def end(self) -> None:
        self._pipe.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _serve(pipe: Connection, stop: Any, decode: Decode) -> None:
    """Calls until the other side hangs up; never returns."""
    try:
        while True:
            call = pickle.loads(pipe.recv_bytes())
            stop.clear()
            stream = decode(call)
            try:
                for news in stream:
                    if stop.is_set():
                        stream.close()
                        break
                    pipe.send_bytes(pickle.dumps(news))
                pipe.send_bytes(pickle.dumps(None))
            except Exception as error:
                traceback.print_exc()
                pipe.send_bytes(pickle.dumps(LeaseError(type(error).__name__)))
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)


class ForkedWorkers:
    """Fork ``num`` processes; each call gets one that is alive and idle, or waits for one."""

    def __init__(self, decode: Decode, num: int = 3) -> None:
        self.all = [ForkedWorker(decode) for _ in range(num)]
        self.busy: list[ForkedWorker] = []
        self._idle = list(self.all)
        self._changed = threading.Condition()

    def lease(self, call: Call) -> Generator[News, None, None]:
        with self._changed:
            # A run is over a moment before the worker that decoded it is back.
            self._changed.wait_for(lambda: self._idle or not self.busy, QUEUE_SECONDS)
            self._idle = [worker for worker in self._idle if worker.is_alive]
            if not self._idle:
                raise LeaseError("No GPU was available")
            worker = self._idle.pop(0)
            self.busy.append(worker)
        try:
            yield from worker.call(call)
        finally:
            with self._changed:
                self.busy.remove(worker)
                self._idle.insert(0, worker)
                self._changed.notify()

    def end(self) -> None:
        for worker in self.all:
            worker.end()
