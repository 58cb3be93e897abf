"""The cursor forward as one function on tensors that stay on the device, for CUDA graphs."""

from mars_runtime.decoders.static.batch import StaticBatch

__all__ = ["StaticBatch"]
