"""``python -m app.site --out DIR``: writes a site of recorded runs that needs no server.

For a static Space, and for the day on which the network fails on stage.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app.replay.recordings import FOLDER, RecordingsError, load
from app.replay.site import build_site
from mars_runtime.outputs import path_of


def main() -> int:
    """Write the site; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.site", description=__doc__)
    parser.add_argument("--out", type=path_of, required=True, help="folder to write")
    parser.add_argument(
        "--recordings", type=Path, default=FOLDER, help="folder that app.record wrote (%(default)s)"
    )
    args = parser.parse_args()
    try:
        pages = build_site(args.out, load(args.recordings))
    except (RecordingsError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(pages)} pages; open {pages[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
