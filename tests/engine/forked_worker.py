"""Processes that decode calls as ZeroGPU's do: forked from this one, reused while they live, with
pickled arguments, stopped at their next yield.

They are forked when the fixture is made, so no test depends on what a thread was doing at that
moment.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import traceback
from collections.abc import Generator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from mars_runtime.engine.leased.worker import Call, Decode, LeaseError, News

ABORTED = "GPU task aborted"


class ForkedWorker:
    """One process with its own copy of everything but shared memory."""

    def __init__(self, decode: Decode) -> None:
        context = get_context("fork")
        self._pipe, far = context.Pipe()
        self._stop = context.Event()
        self.is_alive = True
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
            self.is_alive = False
            raise LeaseError(ABORTED) from None
        if isinstance(actual, Exception):
            raise actual
        return actual

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        self._pipe.close()
        self.kill()
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
    """``num`` processes; each call gets an idle one, or waits for one."""

    def __init__(self, decode: Decode, num: int = 3) -> None:
        self.all = [ForkedWorker(decode) for _ in range(num)]
        self.busy: list[ForkedWorker] = []
        self._idle: queue.LifoQueue[ForkedWorker] = queue.LifoQueue()
        for worker in self.all:
            self._idle.put(worker)

    def lease(self, call: Call) -> Generator[News, None, None]:
        worker = self._idle.get(timeout=30)
        self.busy.append(worker)
        try:
            yield from worker.call(call)
        finally:
            self.busy.remove(worker)
            if worker.is_alive:
                self._idle.put(worker)

    def end(self) -> None:
        for worker in self.all:
            worker.end()
