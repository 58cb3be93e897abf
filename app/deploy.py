"""``python -m app.deploy --to FOLDER``: write the folder that is uploaded as a Space.

See ``docs/deploy.md`` for the upload. The folder contains the tracked files that the app needs, and
files that are generated for a Space. The kinds of Spaces differ only in the front matter of the
card, the requirements and the variables; the code is the same.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from mars_runtime.files.outputs import OutputError, check_folder, path_of

ROOT = Path(__file__).resolve().parents[1]
KEPT = re.compile(
    r"app\.py|LICENSE|pyproject\.toml|(app|mars_runtime|checkpoints|assets/built|assets/web|assets/recordings)/.+"
    r"|assets/results/(evaluation|chat_evaluation|page_methods)"
    r"\.json"
)
LEFT_OUT = re.compile(
    r"app/deploy\.py"
    r"|mars_runtime/lab/.+"
    r"|checkpoints/([^/]+/log[\w-]*\.jsonl|ar-tiny-draft/.+)"
)
"""Paths excluded from the Space: ``mars_runtime/lab``, training logs, the checkpoint
``ar-tiny-draft``, and this script.
"""
NO_GIT = (
    "The files of the repository cannot be listed. Install git, and run this command in a clone of "
    "the repository."
)
NOT_HERE = (
    "{} is not installed. Run pip install -r requirements.txt, and try the page before you "
    "deploy it."
)
OCCUPIED = "{} is not empty. Choose an empty folder or a new one."
CPU_WHEELS = "--extra-index-url https://download.pytorch.org/whl/cpu"
"""Option for pip: the package index with builds of torch without CUDA, which are gigabytes smaller.
"""
COMMON_VARIABLES = {"MARS_NUM_PROXIES": "1"}
"""Variables of every Space. The Hub has one proxy in front of each Space."""


@dataclass(frozen=True, slots=True)
class SpaceKind:
    """A type of Space that this script can generate.

    hardware: the hardware that the card suggests.
    about: a paragraph of the card.
    python: the Python version in the card.
    variables: environment variables of the Space.
    preload: Hub repositories that are included in the image of the Space.
    pins: package versions that the hardware requires.
    options: extra options for pip.
    packages: Debian packages to install.
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
SMALL_CPU = "Xalphinions/MARS-Qwen2.5-0.5B-blk4"
"""Checkpoint for slow CPUs. It makes four proposals per forward pass, because each fed position is
expensive on a CPU.
"""

TARGETS: Mapping[str, SpaceKind] = {
    "cpu": SpaceKind(
        hardware="cpu-basic",
        about="Runs on two free CPU cores with the bundled checkpoints, a chat model that is "
        "downloaded, and an int8 version of the 0.5B checkpoint that the authors of the paper "
        "published. The default is the chat model; `MARS_CHECKPOINT` = `mars-0.5b-blk4` makes the "
        "authors' checkpoint the default.",
        variables={
            "MARS_CHECKPOINT": "mars-smollm2",
            "MARS_OFFERED": "mars-smollm2,mars-0.5b-blk4,mars-tiny,ar-tiny,mars-tiny-draft,"
            "block-diffusion-tiny",
            **COMMON_VARIABLES,
        },
        preload=(SMALL_CPU,),
        options=(CPU_WHEELS,),
        packages=("g++",),
    ),
    "gpu": SpaceKind(
        hardware="l40sx1",
        about="Runs on a dedicated GPU with the checkpoints that the authors of the paper "
        "published.",
        variables={
            "MARS_CHECKPOINT": "mars-7b-blk8",
            "MARS_OFFERED": "mars-0.5b-blk8,mars-tiny",
            **COMMON_VARIABLES,
        },
        preload=(LARGE, SMALL),
    ),
    "zerogpu": SpaceKind(
        hardware="zero-a10g",
        about="Runs on ZeroGPU, which lends a GPU for each run, with a checkpoint that the authors "
        "published.",
        python="3.12.12",
        variables={
            "MARS_CHECKPOINT": "mars-0.5b-blk8",
            "MARS_OFFERED": "mars-tiny",
            **COMMON_VARIABLES,
        },
        preload=(SMALL,),
        pins={"torch": "2.11.0", "spaces": "0.51.3"},
    ),
}


class DeployError(ValueError):
    """The folder cannot be generated. The message is one sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m app.deploy", description=__doc__)
    parser.add_argument("--to", type=path_of, required=True, help="folder to write")
    parser.add_argument(
        "--target", choices=TARGETS, default="cpu", help="kind of Space (%(default)s)"
    )
    args = parser.parse_args()
    try:
        names = deploy(args.to, args.target)
    except (DeployError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    size = sum((args.to / name).stat().st_size for name in names)
    print(
        f"Wrote {len(names)} files, {size / 1e6:.0f} MB, to {args.to}. Upload this folder as a "
        "Space."
    )
    return 0


def deploy(folder: Path, target: str, root: Path = ROOT) -> list[str]:
    """Write the Space into ``folder``, completely or not at all, and return the names of its files.

    target: a key of TARGETS. Raises DeployError or OutputError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeployError(OCCUPIED.format(folder))
    names, texts = tracked(root), generated(TARGETS[target], root)
    check_folder(folder.absolute().parent)
    partial = Path(tempfile.mkdtemp(prefix=".deploy-", dir=folder.absolute().parent))
    try:
        for name in names:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, partial / name)
        for name, text in texts.items():
            (partial / name).write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        partial.rename(folder.absolute())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise DeployError(
            f"{folder} cannot be written ({reason}). Choose another folder."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sorted({*names, *texts})


def tracked(root: Path = ROOT) -> list[str]:
    """Return the names of the tracked files that the app needs at run time. Raises DeployError."""
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise DeployError(NO_GIT) from error
    names = [name for name in listed.split("\0") if KEPT.fullmatch(name)]
    needed = [name for name in names if not LEFT_OUT.fullmatch(name)]
    if "app.py" not in needed:
        raise DeployError(NO_GIT)
    return needed


def generated(target: SpaceKind, root: Path = ROOT) -> dict[str, str]:
    """Return the generated files of a Space, as text by name. Raises DeployError."""
    texts = {
        "README.md": card(target, (root / "README.md").read_text("utf-8")),
        "requirements.txt": _lines(target.options, requirements(target, root)),
        "variables.env": _lines(f"{name}={value}" for name, value in target.variables.items()),
    }
    if target.packages:
        texts["packages.txt"] = _lines(target.packages)
    return texts


def requirements(target: SpaceKind, root: Path = ROOT) -> Iterator[str]:
    """Yield the app's requirements, pinned to the installed versions. Raises DeployError."""
    text = (root / "requirements.txt").read_text("utf-8")
    names = re.findall(r"^[\w.-]+", text, re.MULTILINE)
    for name in dict.fromkeys([*names, *target.pins]):
        yield f"{name}=={target.pins.get(name) or installed(name)}"


def installed(name: str) -> str:
    """Return the installed version of a package, without a build suffix such as ``+cpu``. Raises
    DeployError.
    """
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError as error:
        raise DeployError(NOT_HERE.format(name)) from error


def card(target: SpaceKind, readme: str) -> str:
    """Return the Space's card: the repository's front matter with the values of this kind of Space,
    and a description of the page. Raises DeployError.
    """
    match = re.match(r"---\n(.*?)^---\n(.*)", readme, re.DOTALL | re.MULTILINE)
    if match is None:
        raise DeployError("README.md has no front matter. Restore it.")
    front, body = match.groups()
    values = {
        "sdk_version": installed("gradio"),
        "python_version": target.python,
        "suggested_hardware": target.hardware,
        **({"preload_from_hub": list(target.preload)} if target.preload else {}),
    }
    title, about, *_ = body.strip().split("\n\n")
    paragraphs = [title, about, target.about, _variables_text(target.variables)]
    return f"---\n{_front(front, values)}---\n\n" + "\n\n".join(paragraphs) + "\n"


def _variables_text(variables: Mapping[str, str]) -> str:
    lines = "\n".join(f"- `{name}`: `{value}`" for name, value in variables.items())
    return f"Environment variables of this Space. A duplicate needs only these:\n\n{lines}"


def _front(front: str, values: Mapping[str, object]) -> str:
    """Replace values in the front matter. New values are written as JSON, which is valid YAML."""
    unchanged = re.sub(rf"^({'|'.join(values)}):.*\n(?:[ -].*\n)*", "", front, flags=re.MULTILINE)
    return unchanged + _lines(f"{name}: {json.dumps(value)}" for name, value in values.items())


def _lines(*groups: Iterator[str] | tuple[str, ...]) -> str:
    return "".join(f"{line}\n" for group in groups for line in group)


if __name__ == "__main__":
    sys.exit(main())
