"""``python -m app.deploy --to FOLDER``: writes the folder that is uploaded as a Space.

For the upload itself see ``docs/deploy.md``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from app.deploy.files import ROOT, DeployError, tracked, written
from app.deploy.targets import TARGETS
from mars_runtime.outputs import OutputError, check_folder, path_of

OCCUPIED = "{} is occupied: name a folder that is empty or not there."


def main() -> int:
    """Write the folder; the exit code."""
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
    print(f"{len(names)} files, {size / 1e6:.0f} MB, in {args.to}: upload them as a Space.")
    return 0


def deploy(folder: Path, target: str, root: Path = ROOT) -> list[str]:
    """Write the Space of a target into ``folder``, whole or not at all; returns the names of its
    files. Raises DeployError or OutputError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeployError(OCCUPIED.format(folder))
    names, texts = tracked(root), written(TARGETS[target], root)
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
        raise DeployError(f"{folder} cannot be written ({reason}): name another.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sorted({*names, *texts})


if __name__ == "__main__":
    sys.exit(main())
