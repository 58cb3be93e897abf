"""What a Space is made of: the tracked files that the app reads, and those written for it.

Knows git and pip's files; writes nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from app.deploy.targets import Target

ROOT = Path(__file__).resolve().parents[2]
KEPT = re.compile(
    r"app\.py|LICENSE|pyproject\.toml|(app|mars_runtime|checkpoints|assets/web|assets/recordings)/.+"
    r"|assets/results/(evaluation|benchmark|chat_evaluation|methods|thresholds|lm_eval|paper)\.json"
)
LEFT_OUT = re.compile(
    r"app/deploy/.+"
    r"|mars_runtime/lab/(training|verification|benchmark|profiling|scaling|ablation|harness|documents)/.+"
    r"|checkpoints/([^/]+/log[\w-]*\.jsonl|ar-tiny-draft/.+)"
)
"""Of these what makes and measures checkpoints, and this package."""
NO_GIT = (
    "Run this in a clone of the repository, where git is installed: what git tracks is uploaded."
)
NOT_HERE = "{} is not installed here: pip install -r requirements.txt, and try what you deploy."


class DeployError(ValueError):
    """The folder cannot be made; the message is one sentence that says what to do."""


def tracked(root: Path = ROOT) -> list[str]:
    """The files of the repository that the app needs when it runs. Raises DeployError."""
    command = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise DeployError(NO_GIT) from error
    names = [name for name in listed.split("\0") if KEPT.fullmatch(name)]
    kept = [name for name in names if not LEFT_OUT.fullmatch(name)]
    if "app.py" not in kept:
        raise DeployError(NO_GIT)
    return kept


def written(target: Target, root: Path = ROOT) -> dict[str, str]:
    """Name -> text of the files that are made for a target. Raises DeployError."""
    texts = {
        "README.md": card(target, (root / "README.md").read_text("utf-8")),
        "requirements.txt": _lines(target.options, requirements(target, root)),
        "variables.env": _lines(f"{name}={value}" for name, value in target.variables.items()),
    }
    if target.packages:
        texts["packages.txt"] = _lines(target.packages)
    return texts


def requirements(target: Target, root: Path = ROOT) -> Iterator[str]:
    """The app's own requirements, each in the version that is installed here: what was tried is
    what is deployed. Raises DeployError."""
    text = (root / "requirements.txt").read_text("utf-8")
    names = re.findall(r"^[\w.-]+", text, re.MULTILINE)
    for name in dict.fromkeys([*names, *target.pins]):
        yield f"{name}=={target.pins.get(name) or installed(name)}"


def installed(name: str) -> str:
    """A version without the mark of a build, which other hardware has not. Raises DeployError."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError as error:
        raise DeployError(NOT_HERE.format(name)) from error


def card(target: Target, readme: str) -> str:
    """The Space's card: the front matter of the repository's with what the target needs, and what
    the page is. Raises DeployError."""
    found = re.match(r"---\n(.*?)^---\n(.*)", readme, re.DOTALL | re.MULTILINE)
    if found is None:
        raise DeployError("README.md has no front matter: restore it.")
    front, body = found.groups()
    values = {
        "sdk_version": installed("gradio"),
        "python_version": target.python,
        "suggested_hardware": target.hardware,
        **({"preload_from_hub": list(target.preload)} if target.preload else {}),
    }
    title, about, *_ = body.strip().split("\n\n")
    told = [title, about, target.about, _told(target.variables)]
    return f"---\n{_front(front, values)}---\n\n" + "\n\n".join(told) + "\n"


def _told(variables: Mapping[str, str]) -> str:
    lines = "\n".join(f"- `{name}`: `{value}`" for name, value in variables.items())
    return f"Variables of this Space, which are all there is to change in a duplicate:\n\n{lines}"


def _front(front: str, values: Mapping[str, object]) -> str:
    """The front matter with these values in the place of its own; JSON is YAML."""
    kept = re.sub(rf"^({'|'.join(values)}):.*\n(?:[ -].*\n)*", "", front, flags=re.MULTILINE)
    return kept + _lines(f"{name}: {json.dumps(value)}" for name, value in values.items())


def _lines(*groups: Iterator[str] | tuple[str, ...]) -> str:
    return "".join(f"{line}\n" for group in groups for line in group)
