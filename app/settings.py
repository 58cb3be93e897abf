"""What whoever runs the app may choose, read from the environment once. Knows no gradio or torch.

Every name below is also the name of an environment variable with ``MARS_`` before it and in upper
case, so a duplicated Space is configured without touching the code (``MARS_CHECKPOINT=...``).
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
    """A variable or flag that makes no sense; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Where to serve, what to load, and the caps that keep a public page alive.

    host, port: where the page is served.
    checkpoint: a name of ``checkpoints/registry.json``, the path of a checkpoint, or the owner/name
        of a repository on the hub.
    offered: what visitors may have loaded beside it: names of the registry with commas between, or
        ``all``; by default those that are bundled or known to the byte, and of the hub the small
        ones, if it answers.
    offline: fetch nothing; a checkpoint that is not here is said to be missing.
    device, dtype: ``auto`` picks CUDA and bf16 where there is a GPU, else the CPU and what
        ``model.build`` finds to be best there.
    max_prompt_chars: longer prompts are refused, never cut.
    max_new_tokens: the end of the slider, and of what a request past the page may ask for.
    max_seconds: a run ends after this long by the wall clock, waits of slow motion included.
    max_runs: visitors whose runs share the model; max_waiting: runs that may wait behind them.
    max_runs_per_address: at once, waiting ones included; visitors of one school or company may
        share an address.
    num_proxies: trusted ones before this server, as one is before a Space. Whose a request is, is
        told by the entry that many from the right of X-Forwarded-For; with 0 by the socket.
    max_body_bytes: larger requests are answered with 413 before they are read.
    max_import_bytes: a recorded run that a visitor brings to compare may be so large.
    data: a folder in which runs are kept that visitors share by links, if they are too long for
        one, and what is judged in the Review tab; empty keeps none.
    remote: where the endpoint of another machine is, which decodes for this page; empty: it decodes
        itself. remote_key: the key that machine asks for.
    review_key: whoever has it judges in the Review tab so that it is kept in ``data``, and makes
        sets as large as the command's; empty: every browser keeps its own.
    api_key: programs must send it to the OpenAI-compatible endpoint; empty asks for none.
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
        """The largest request of the Review tab: runs to import, or a set that a browser kept."""
        return max(4 * self.max_import_bytes, MAX_SEALED + ENVELOPE)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> AppSettings:
        """The settings that the variables ask for, defaults elsewhere. Raises AppSettingsError."""
        environment = os.environ if environment is None else environment
        chosen: dict[str, str | int | float | bool] = {}
        for each in fields(cls):
            text = environment.get(PREFIX + each.name.upper(), "").strip()
            if text:
                chosen[each.name] = _parse(PREFIX + each.name.upper(), text, each.default)
        return cls(**chosen)  # type: ignore[arg-type]


def _parse(name: str, text: str, default: object) -> str | int | float | bool:
    """The text as a value of the default's type."""
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
