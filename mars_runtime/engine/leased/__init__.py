"""Runs on a device that is lent for each of them, to a process that was forked: ZeroGPU's way."""

from mars_runtime.engine.leased.calls import Call, Lease, LeaseError, News
from mars_runtime.engine.leased.engine import LeasedEngine
from mars_runtime.engine.leased.slots import Slots
from mars_runtime.engine.leased.worker import Worker

__all__ = ["Call", "Lease", "LeaseError", "LeasedEngine", "News", "Slots", "Worker"]
