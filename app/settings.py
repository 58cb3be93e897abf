"""Settings of the app, read once from the environment.

The environment variable of a setting is the setting's name in upper case with the prefix ``MARS_``,
such as ``MARS_CHECKPOINT``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from mars_runtime.serving.server import PlanError, check_key, read_origins

PREFIX = "MARS_"
GRADIO = {"host": "GRADIO_SERVER_NAME", "port": "GRADIO_SERVER_PORT"}
"""Gradio's own variables for these settings. The variable with the prefix overrides them."""
SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class AppSettingsError(ValueError):
    """An environment variable or a flag is invalid. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Where the page is served, what it loads, and the limits of a public page.

    host, port: address of the server.
    checkpoint: a name in ``checkpoints/registry.json``, the path of a checkpoint, or a Hub
    repository as owner/name.
    offered: other checkpoints that visitors may load: names in the registry separated by commas, or
    ``all``. By default: the bundled checkpoints, those with known checksums, and small Hub
    checkpoints if the Hub answers.
    offline: download nothing; report a missing checkpoint instead.
    device, dtype: ``auto`` selects CUDA and bf16 on a GPU, otherwise the CPU and the fastest dtype
    that ``model.build`` supports on the CPU.
    max_prompt_chars: maximum length of a prompt; longer prompts are rejected, never truncated.
    max_new_tokens: token limit of every request, and the maximum of the token slider.
    max_seconds: time limit of a run in wall-clock time, including the pauses of slow motion.
    max_runs: number of runs that share the model. max_waiting: number of runs that may wait for a
    slot.
    max_runs_per_address: number of running and waiting runs per address. Visitors of one school or
    company may share an address.
    num_proxies: number of trusted proxies in front of this server (1 for a Space). With N proxies,
    the client's address is the Nth entry from the right of X-Forwarded-For; with 0, it is the
    address of the connection.
    max_body_bytes: maximum size of a request; larger ones get the status 413 before they are read.
    max_import_bytes: maximum size of an imported run.
    api_key: key that clients of the OpenAI-compatible endpoint must send; if empty, no key is
    required.
    allowed_origins: origins of web pages that may call that endpoint from a browser, separated by
    commas, or ``*`` for all; if empty, none may.
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
    api_key: str = field(default="", repr=False)
    allowed_origins: str = ""

    def __post_init__(self) -> None:
        for name in (
            "max_prompt_chars", "max_new_tokens", "max_runs", "max_runs_per_address",
            "max_body_bytes", "max_import_bytes",
        ):  # fmt: skip
            if (value := getattr(self, name)) < 1:
                raise AppSettingsError(f"{PREFIX}{name.upper()} must be at least 1, got {value}.")
        for name in ("max_waiting", "num_proxies"):
            if (value := getattr(self, name)) < 0:
                raise AppSettingsError(f"{PREFIX}{name.upper()} must be at least 0, got {value}.")
        if not self.max_seconds > 0:
            raise AppSettingsError(
                f"{PREFIX}MAX_SECONDS must be above 0, got {self.max_seconds:g}."
            )
        if not 0 <= self.port <= 65535:
            raise AppSettingsError(
                f"{PREFIX}PORT must be a port number, or 0 for any free one, got {self.port}."
            )
        try:
            check_key(self.api_key)
            read_origins(self.allowed_origins)
        except PlanError as error:
            raise AppSettingsError(str(error)) from None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> AppSettings:
        """Return the settings from environment variables; settings without a variable have
        defaults. Raises AppSettingsError.
        """
        environment = os.environ if environment is None else environment
        chosen: dict[str, str | int | float | bool] = {}
        for setting in fields(cls):
            for variable in (GRADIO.get(setting.name, ""), PREFIX + setting.name.upper()):
                if text := environment.get(variable, "").strip():
                    chosen[setting.name] = _parse(variable, text, setting.default)
        return cls(**chosen)  # type: ignore[arg-type]


def _parse(name: str, text: str, default: object) -> str | int | float | bool:
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() not in SWITCH:
            raise AppSettingsError(f"{name} must be 1 or 0, got {text!r}.")
        return SWITCH[text.lower()]
    try:
        return int(text) if isinstance(default, int) else float(text)
    except ValueError:
        expected = "a whole number" if isinstance(default, int) else "a number"
        raise AppSettingsError(f"{name} must be {expected}, got {text!r}.") from None
