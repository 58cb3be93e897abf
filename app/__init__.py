"""The demo page: a leaf that renders what the runtime says. Deleting it breaks nothing below."""

import sys

from app import stubs
from mars_runtime.network import repair_network

# Before anything imports gradio.
stubs.write_none()
for sentence in repair_network():
    print(sentence, file=sys.stderr)
