"""Settings of the app, read once from the environment.

The environment variable of a setting is its name in upper case with the prefix ``MARS_``, such as
``MARS_CHECKPOINT``, so a duplicated Space is configured without code changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from mars_runtime.review.masked import MAX_SEALED
from mars_runtime.serving.addresses import OriginsError, read_origins
from mars_runtime.serving.limits import weak_key

PREFIX = "MARS_"
ENVELOPE = 1000
"""Bytes of a request around a sealed set."""
SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class AppSettingsError(ValueError):
    """An invalid variable or flag; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Where to serve, what to load, and the limits that keep a public page alive.

    host, port: where the page is served.
    checkpoint: a name of ``checkpoints/registry.json``, the path of a checkpoint, or owner/name of
    a repository on the Hub.
    offered: other checkpoints that visitors may load: registry names separated by commas, or
    ``all``. By default the bundled ones, those with known checksums, and small ones of the Hub if
    it answers.
    offline: download nothing; report a missing checkpoint instead.
    device, dtype: ``auto`` picks CUDA and bf16 on a GPU, otherwise the CPU and the fastest type
    that ``model.build`` supports there.
    max_prompt_chars: longer prompts are rejected, never truncated.
    max_new_tokens: end of the slider and limit of every request.
    max_seconds: wall-clock limit of a run, pauses of slow motion included.
    max_runs: visitors whose runs share the model. max_waiting: runs that may wait behind them.
    max_runs_per_address: concurrent runs, waiting ones included; visitors of one school or company
    may share an address.
    num_proxies: trusted proxies in front of this server (1 for a Space). The client's address is
    the entry that many from the right of X-Forwarded-For, or the socket's if 0.
    max_body_bytes: larger requests get 413 before they are read.
    max_import_bytes: limit of an imported run.
    data: folder for shared runs that are too long for a link and for judgements; empty stores none.
    remote: address of another machine's endpoint that decodes for this page; empty decodes here.
    remote_key: API key of that machine.
    review_key: clients with this key store judgements in ``data`` and may create sets as large as
    the command's; empty stores all judgements in browsers.
    api_key: required by the OpenAI-compatible endpoint; empty requires none.
    allowed_origins: origins whose pages may call that endpoint from a browser, separated by commas,
    or ``*`` for all; empty allows none.
    """

    host: str = "127.0.0.1"
    port: int = 7860
    checkpoint: str = "mars-smollm2"
    offered: str = ""
    offline: bool = False
    device: str = "auto"
    dtype: str = "auto"
    max_prompt_chars: int = 8000
    max_new_tokens: int = 512
    max_seconds: float = 300.0
    max_runs: int = 4
    max_waiting: int = 12
    max_runs_per_address: int = 8
    num_proxies: int = 0
    max_body_bytes: int = 262_144
    max_import_bytes: int = 4_000_000
    data: str = ""
    review_key: str = field(default="", repr=False)
    remote: str = ""
    remote_key: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    allowed_origins: str = ""

    def __post_init__(self) -> None:
        for name in (
            "max_prompt_chars", "max_new_tokens", "max_runs", "max_runs_per_address",
            "max_body_bytes", "max_import_bytes",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise AppSettingsError(f"{PREFIX}{name.upper()} must be at least 1.")
        for name in ("max_waiting", "num_proxies"):
            if getattr(self, name) < 0:
                raise AppSettingsError(f"{PREFIX}{name.upper()} must not be negative.")
        for name in ("review_key", "api_key"):
            if fault := weak_key(f"{PREFIX}{name.upper()}", getattr(self, name)):
                raise AppSettingsError(fault)
        if not self.max_seconds > 0:
            raise AppSettingsError(f"{PREFIX}MAX_SECONDS must be above 0.")
        if not 0 <= self.port <= 65535:
            raise AppSettingsError(f"{PREFIX}PORT must be a port number, or 0 for any free one.")
        try:
            read_origins(self.allowed_origins)
        except OriginsError as error:
            raise AppSettingsError(str(error)) from None

    @property
    def max_review_bytes(self) -> int:
        """The largest request of the Review tab: runs to import, or a sealed set."""
        return max(4 * self.max_import_bytes, MAX_SEALED + ENVELOPE)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> AppSettings:
        """Read the settings from environment variables, with defaults for the rest. Raises
        AppSettingsError.
        """
        environment = os.environ if environment is None else environment
        chosen: dict[str, str | int | float | bool] = {}
        for setting in fields(cls):
            text = environment.get(PREFIX + setting.name.upper(), "").strip()
            if text:
                chosen[setting.name] = _parse(PREFIX + setting.name.upper(), text, setting.default)
        return cls(**chosen)  # type: ignore[arg-type]


def _parse(name: str, text: str, default: object) -> str | int | float | bool:
    """Parse the text as a value of the default's type."""
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() not in SWITCH:
            raise AppSettingsError(f"{name} must be 1 or 0.")
        return SWITCH[text.lower()]
    try:
        return int(text) if isinstance(default, int) else float(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise AppSettingsError(f"{name} must be {kind}.") from None
