"""The kinds of Space that there are: hardware, versions and variables of each. Writes nothing.

Whatever differs between them stands in the front matter of the card, in the requirements or in a
variable of the Space, so that one kind becomes another without a line of code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CPU_WHEELS = "--extra-index-url https://download.pytorch.org/whl/cpu"
"""Where torch comes without CUDA, gigabytes less."""
BEHIND = {"MARS_NUM_PROXIES": "1"}
"""What every Space has before it: the hub's own proxy."""


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of Space.

    hardware: what the card suggests; python: the version it asks for. variables: of the Space.
    preload: repositories of the hub that its image holds. pins: versions that the hardware demands,
    of packages that are required anyway or for this kind alone. options: of pip. packages: of
    Debian.
    """

    hardware: str
    about: str
    python: str = "3.12"
    variables: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    pins: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


SMALL, LARGE = "Xalphinions/MARS-Qwen2.5-0.5B-blk8", "Xalphinions/MARS-Qwen2.5-7B-blk8"

TARGETS: Mapping[str, Target] = {
    "cpu": Target(
        hardware="cpu-basic",
        about="Two free CPU cores: the bundled checkpoints, and a chat model that is fetched.",
        variables={"MARS_CHECKPOINT": "mars-smollm2", **BEHIND},
        options=(CPU_WHEELS,),
        packages=("g++",),
    ),
    "gpu": Target(
        hardware="l40sx1",
        about="A GPU of its own: the checkpoints that the authors of the paper published.",
        variables={
            "MARS_CHECKPOINT": "mars-7b-blk8",
            "MARS_OFFERED": "mars-0.5b-blk8,mars-tiny",
            **BEHIND,
        },
        preload=(LARGE, SMALL),
    ),
    "zerogpu": Target(
        hardware="zero-a10g",
        about="ZeroGPU, a GPU that is lent for each run: a checkpoint that the authors published.",
        python="3.12.12",
        variables={"MARS_CHECKPOINT": "mars-0.5b-blk8", "MARS_OFFERED": "mars-tiny", **BEHIND},
        preload=(SMALL,),
        pins={"torch": "2.11.0", "spaces": "0.51.3"},
    ),
}
