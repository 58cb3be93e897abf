"""Show runs: in a terminal, in a notebook, as an HTML document, and the files of the page."""
