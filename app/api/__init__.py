"""The typed API: the same runs as the page's, without it. Knows no gradio.

Each endpoint is a generator of what there is so far, as plain values; the last item is the whole.
Raises RefusalError, one sentence, for anything that cannot be run. Closing it cancels its runs.
"""

from app.api.batches import batch
from app.api.runs import compare, generate, traces

__all__ = ["batch", "compare", "generate", "traces"]
