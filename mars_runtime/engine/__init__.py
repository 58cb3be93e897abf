"""Many requests on one model: submit a request, read and steer its run."""

from mars_runtime.engine.engine import Engine, EngineBusy, EngineError
from mars_runtime.engine.request import Request, RequestError, Solo
from mars_runtime.engine.run import Run

__all__ = ["Engine", "EngineBusy", "EngineError", "Request", "RequestError", "Run", "Solo"]
