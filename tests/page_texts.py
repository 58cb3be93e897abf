"""The page's sentences, read from the script that defines them (``assets/web/core/texts.js``)."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[1] / "assets/web/core/texts.js"


@cache
def texts() -> dict[str, Any]:
    code = f"import * as all from {json.dumps(SCRIPT.as_uri())}; console.log(JSON.stringify(all));"
    command = ["node", "--input-type=module", "-e", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded
