"""The demo page, which renders what the runtime reports. No other package imports it."""

import os
import sys

from app.gradio_compat import write_no_stubs
from mars_runtime.system.network import prepare_network

# This must run before anything imports Gradio.
write_no_stubs()
# Gradio would otherwise refresh the statistics for its monitoring page, which is not served.
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(sys.maxsize))
if fault := prepare_network():
    sys.exit(fault)
