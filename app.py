"""Start the page. Flags override the environment, which overrides the defaults.

Checkpoints are downloaded and loaded by threads while the page starts. See ``python app.py
--help``.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from app.settings import AppSettings, AppSettingsError
from mars_runtime.machine import cache_folder
from mars_runtime.network import repair_network
from mars_runtime.serving.server import PlaceTakenError, bound

if TYPE_CHECKING:
    from app.engines.engines import Engines

FAREWELL_SECONDS = 0.2
"""Time for streams of the page to report that the server is stopping."""
ANSWER_SECONDS = 5.0
"""Maximum time for answers to API clients to end with an error message."""
LEAVE_SECONDS = 10.0
"""Maximum time from the signal to the end of the process, even if something hangs."""

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def main() -> None:
    """Parse, build, serve until interrupted or terminated, and clean up in either case."""
    try:
        settings = read_settings(sys.argv[1:])
        check_folders()
        check_address(settings)
        repair_network(settings.host.strip("[]"))
    except AppSettingsError as error:
        sys.exit(str(error))
    for number in (signal.SIGINT, signal.SIGTERM):
        # A process that was started in the background ignores them.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    status = 0
    try:
        serve(settings)
    except AppSettingsError as error:
        print(error, file=sys.stderr)
        status = 1
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    _end(status)


def _leave(number: int, frame: object) -> None:
    """Exit normally: stop running work and delete temporary files. Python drops exceptions that are
    raised inside a finalizer, and a library may catch them, so a timer ends the process in any
    case.
    """
    last = threading.Timer(LEAVE_SECONDS, _end, [128 + number])
    last.daemon = True
    last.start()
    sys.exit(128 + number)


def _end(status: int) -> None:
    """End the process now; with threads at work a normal exit would hang or abort."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def read_settings(arguments: list[str]) -> AppSettings:
    """Return the settings from the flags and the environment. Raises AppSettingsError."""
    base = AppSettings.from_environment()
    if "SPACE_ID" in os.environ:
        base = replace(base, host="0.0.0.0")
    parser = argparse.ArgumentParser(
        description="MARS live: watch several tokens per forward pass."
    )
    parser.add_argument("--host", default=base.host, help="address to serve at (%(default)s)")
    parser.add_argument(
        "--port", type=int, default=base.port, help="port (%(default)s); 0 picks a free one"
    )
    parser.add_argument(
        "--checkpoint", default=base.checkpoint, help="registry name, path or hub id (%(default)s)"
    )
    parser.add_argument(
        "--offline", action="store_true", default=base.offline, help="download nothing"
    )
    parser.add_argument(
        "--offered",
        default=base.offered,
        help="other checkpoints visitors may choose: names separated by commas, or all",
    )
    parser.add_argument("--device", default=base.device, help="auto, cpu or cuda (%(default)s)")
    return replace(base, **vars(parser.parse_args(arguments)))


def check_folders() -> None:
    """Raise AppSettingsError if no temporary file can be written or the cache is another user's."""
    try:
        tempfile.TemporaryFile().close()
    except OSError as error:
        raise AppSettingsError(
            "No temporary file can be written: free some space, or set the environment variable "
            "TMPDIR to a writable folder."
        ) from error
    try:
        cache_folder()
    except OSError as error:
        raise AppSettingsError(
            f"{error.filename} belongs to another user: set the environment variable MARS_CACHE "
            "to a folder of your own."
        ) from error


def check_address(settings: AppSettings) -> None:
    """Raise AppSettingsError if the address cannot be served; checked before anything is loaded."""
    try:
        bound(settings.host, settings.port).close()
    except PlaceTakenError as error:
        raise AppSettingsError(str(error)) from error


def serve(settings: AppSettings) -> None:
    """Start loading the checkpoint, then serve the page until interrupted.

    Raises AppSettingsError if the page cannot be served at the host and port.
    """
    gc.disable()  # imported modules are no garbage, and collecting takes a good part of the start
    engines = make_engines(settings)
    engines.open()

    from app.handlers import make_handlers
    from app.server import serve as serve_page
    from app.serving.endpoint import OPEN_REQUESTS
    from app.ui.recordings import first

    gc.enable()
    try:
        serve_page(make_handlers(engines), first=first())
    finally:
        engines.close()
        OPEN_REQUESTS.wait(ANSWER_SECONDS)
        time.sleep(FAREWELL_SECONDS)


def make_engines(settings: AppSettings) -> Engines:
    """Return the engines: on this machine, on another one, or on GPUs lent by ZeroGPU. Raises
    AppSettingsError.
    """
    if "SPACES_ZERO_GPU" in os.environ:
        from app.engines.zerogpu import is_on_zerogpu, zero_engines

        if is_on_zerogpu():
            return zero_engines(settings)
    if settings.remote:
        from app.engines.remote import RemoteEngines

        return RemoteEngines(settings)
    from app.engines.engines import Engines

    return Engines(settings)


if __name__ == "__main__":
    main()
