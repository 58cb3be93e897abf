"""Start the page. Flags override environment variables, which override the defaults.

Checkpoints are downloaded and loaded in threads while the page starts. See ``python app.py
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
from mars_runtime.serving.server import AddressInUseError, bound
from mars_runtime.system.machine import cache_folder

if TYPE_CHECKING:
    from app.engines.engines import Engines

FAREWELL_SECONDS = 0.2
"""Time to wait so that open pages can receive the message that the server is stopping."""
ANSWER_SECONDS = 5.0
"""Maximum time that open API requests get to end with an error message."""
LEAVE_SECONDS = 10.0
"""Maximum time that the process may take to exit after a signal; then it is killed."""

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def main() -> None:
    """Read the settings, serve until interrupted or terminated, then clean up."""
    try:
        settings = read_settings(sys.argv[1:])
        check_folders()
        check_address(settings)
    except AppSettingsError as error:
        sys.exit(str(error))
    for number in (signal.SIGINT, signal.SIGTERM):
        # Keep ignoring signals that the shell has disabled for a background process.
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
    """Exit normally, which stops runs and deletes temporary files.

    A timer ends the process if the SystemExit gets lost: Python drops exceptions that are raised
    inside a finalizer, and a library may catch them.
    """
    timer = threading.Timer(LEAVE_SECONDS, _end, [128 + number])
    timer.daemon = True
    timer.start()
    sys.exit(128 + number)


def _end(status: int) -> None:
    """End the process at once. A normal exit would hang or abort while other threads run."""
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
        description="MARS live: watch a model generate several tokens per forward pass."
    )
    parser.add_argument("--host", default=base.host, help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port",
        type=int,
        default=base.port,
        help="port to listen on (%(default)s); 0 picks a free port",
    )
    parser.add_argument(
        "--checkpoint",
        default=base.checkpoint,
        help="registry name, path or Hub repository (%(default)s)",
    )
    parser.add_argument(
        "--offline", action="store_true", default=base.offline, help="download no checkpoints"
    )
    parser.add_argument(
        "--offered",
        default=base.offered,
        help="other checkpoints that visitors may choose: names separated by commas, or all",
    )
    parser.add_argument("--device", default=base.device, help="auto, cpu or cuda (%(default)s)")
    return replace(base, **vars(parser.parse_args(arguments)))


def check_folders() -> None:
    """Raise AppSettingsError if temporary files cannot be written or the cache folder belongs to
    another user.
    """
    try:
        tempfile.TemporaryFile().close()
    except OSError as error:
        raise AppSettingsError(
            "Temporary files cannot be written. Free some disk space, or set the environment "
            "variable TMPDIR to a writable folder."
        ) from error
    try:
        cache_folder()
    except OSError as error:
        raise AppSettingsError(
            f"{error.filename} belongs to another user. Set the environment variable MARS_CACHE "
            "to a folder that you own."
        ) from error


def check_address(settings: AppSettings) -> None:
    """Raise AppSettingsError if the host and port cannot be used. Called before loading
    anything.
    """
    try:
        bound(settings.host, settings.port).close()
    except AddressInUseError as error:
        raise AppSettingsError(str(error)) from error


def serve(settings: AppSettings) -> None:
    """Start loading the checkpoint, then serve the page until interrupted.

    Raises AppSettingsError if the host and port cannot be used.
    """
    gc.disable()  # garbage collection during the imports would slow the start and free nothing
    engines = make_engines(settings)
    engines.open()

    from app.handlers import make_handlers
    from app.server import serve as serve_page
    from app.serving.endpoint import OPEN_REQUESTS
    from app.ui.recordings import first

    gc.enable()
    try:
        serve_page(make_handlers(engines), first=first(engines.default))
    finally:
        engines.close()
        OPEN_REQUESTS.wait(ANSWER_SECONDS)
        time.sleep(FAREWELL_SECONDS)


def make_engines(settings: AppSettings) -> Engines:
    """Return engines that decode on this machine or on GPUs lent by ZeroGPU.

    Raises AppSettingsError.
    """
    if "SPACES_ZERO_GPU" in os.environ:
        from app.engines.zerogpu import LeasedEngines, is_on_zerogpu

        if is_on_zerogpu():
            return LeasedEngines(settings)  # in this thread, because it loads the weights
    from app.engines.engines import Engines

    return Engines(settings)


if __name__ == "__main__":
    main()
