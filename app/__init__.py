"""The demo page: a leaf that renders what the runtime says. Deleting it breaks nothing below."""

import os
import sys

from app.gradio_compat import write_no_stubs
from mars_runtime.network import repair_network

# Before anything imports gradio.
write_no_stubs()
# Else Gradio sums up all events after each one, for a monitoring page that is not served.
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(sys.maxsize))
for sentence in repair_network():
    print(sentence, file=sys.stderr)
