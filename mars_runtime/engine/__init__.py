"""Serve many requests on one model."""

from mars_runtime.engine.engine import Engine, EngineBusy, EngineError
from mars_runtime.engine.request import CustomDecoderRequest, Request, RequestError
from mars_runtime.engine.run import Run

__all__ = [
    "CustomDecoderRequest",
    "Engine",
    "EngineBusy",
    "EngineError",
    "Request",
    "RequestError",
    "Run",
]
