"""The demo page, which renders what the runtime reports. No other package imports it."""

import os
import sys

from app.gradio_compat import write_no_stubs
from mars_runtime.network import repair_network

# This must run before anything imports Gradio.
write_no_stubs()
# Otherwise Gradio updates statistics after every event, for a monitoring page that is not served.
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(sys.maxsize))
for sentence in repair_network():
    print(sentence, file=sys.stderr)
