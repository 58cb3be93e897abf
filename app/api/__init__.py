"""The typed API: the same runs as the page's, without it. Only ``endpoints.py`` knows gradio.

Each endpoint is a generator of what there is so far, as plain values; the last item is the whole.
Raises RefusalError, one sentence, for anything that cannot be run. Closing it cancels its runs.
"""
