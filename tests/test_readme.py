"""The README tells the truth about files, commands and the Space.

``python tests/test_readme.py`` rewrites the file map: lines that are there stay, missing files get
the first sentence of their docstring or leading comment, files that are gone lose their line.
"""

from __future__ import annotations

import ast
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MAPPED = {".py", ".js", ".css", ".html"}
WIDTH = 44


def repository_files() -> set[str]:
    """Paths that belong to the repository and must be in the map."""
    command = ["git", "-C", str(ROOT), "ls-files"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = listed.splitlines()
    except (OSError, subprocess.SubprocessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return {
        name
        for name in names
        if Path(name).suffix in MAPPED
        and not name.startswith((".", "runs/", "assets/results/"))
        and (ROOT / name).exists()
        and _says_something(ROOT / name)
    }


def _says_something(path: Path) -> bool:
    """Empty ``__init__.py`` files have no job and no line."""
    return path.name != "__init__.py" or path.stat().st_size > 0


def map_section(text: str) -> str:
    """What stands between the fences under the heading of the map."""
    found = re.search(r"^## File map\n+```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, "README.md has no file map"
    return found.group(1)


def read_map(text: str) -> dict[str, str]:
    """Path -> its line of explanation; folders end in a slash."""
    entries: dict[str, str] = {}
    folders: list[str] = []
    for line in map_section(text).splitlines():
        indent, rest = re.match(r"( *)(.*)", line).groups()  # type: ignore[union-attr]
        name, _, meaning = rest.partition(" ")
        folders = folders[: len(indent) // 2]
        path = "".join(folders) + name
        entries[path] = meaning.strip()
        if name.endswith("/"):
            folders.append(name)
    return entries


def test_every_file_is_in_the_map_with_a_line():
    entries = read_map(README.read_text(encoding="utf-8"))
    missing = sorted(repository_files() - set(entries))
    assert not missing, f"run `python tests/test_readme.py`; not in the map: {missing}"
    empty = [path for path, meaning in entries.items() if not meaning and path[-1] != "/"]
    assert not empty, f"say in the map what these are: {empty}"


def test_every_mapped_file_exists():
    entries = read_map(README.read_text(encoding="utf-8"))
    gone = [path for path in entries if not (ROOT / path).exists()]
    assert not gone, f"run `python tests/test_readme.py`; gone: {gone}"


def test_the_space_would_start():
    text = README.read_text(encoding="utf-8")
    front = dict(
        line.split(": ", 1) for line in text.split("---\n")[1].splitlines() if ": " in line
    )
    assert front["sdk"] == "gradio"
    assert re.fullmatch(r"\d+\.\d+\.\d+", front["sdk_version"])
    assert (ROOT / front["app_file"]).exists()
    assert front["license"] == "apache-2.0"
    assert len(front["short_description"]) <= 60
    pinned = [line for line in requirement_lines("requirements.txt") if line.startswith("gradio")]
    version = front["sdk_version"].rsplit(".", 1)[0]
    assert pinned == [f"gradio>={version},<{int(version.split('.')[0]) + 1}"]


def requirement_lines(name: str) -> list[str]:
    """The requirements of a file, one a line."""
    return (ROOT / name).read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_are_bounded_and_met_here(name: str):
    from packaging.requirements import Requirement

    lines = [line for line in (ROOT / name).read_text().splitlines() if line[:2] != "-r"]
    for requirement in map(Requirement, lines):
        operators = {part.operator for part in requirement.specifier}
        assert operators & {"<", "<=", "=="}, f"{requirement} has no upper bound"
        found = metadata.version(requirement.name)
        assert requirement.specifier.contains(found), f"{requirement}, but here is {found}"


def test_the_two_commands_are_those_that_work():
    text = README.read_text(encoding="utf-8")
    assert "pip install -r requirements.txt && python app.py" in text
    assert "pip install -r requirements-dev.txt && python -m pytest" in text
    assert "\npython -m pytest" in (ROOT / ".ci" / "run").read_text()


def test_local_links_lead_somewhere():
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", text):
        assert (ROOT / target).exists(), f"README.md links to {target}"


def refreshed_map(text: str) -> str:
    """The map for the files that are there now, known lines kept."""
    known = read_map(text)
    extra = {path for path in known if path[-1] != "/" and (ROOT / path).exists()}
    paths = sorted(repository_files() | extra, key=lambda path: (path.count("/") > 0, path))
    lines: list[str] = []
    seen: set[str] = set()
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth]) + "/"
            if folder not in seen:
                seen.add(folder)
                lines.append(_line(depth - 1, parts[depth - 1] + "/", known.get(folder, "")))
        meaning = known.get(path) or first_sentence(ROOT / path)
        lines.append(_line(len(parts) - 1, parts[-1], meaning))
    return "\n".join(lines) + "\n"


def _line(depth: int, name: str, meaning: str) -> str:
    return f"{'  ' * depth + name:<{WIDTH}} {meaning}".rstrip()


def first_sentence(path: Path) -> str:
    """What a file says of itself first, in its docstring or leading comment, without full stop."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        docstring = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = re.match(r"\s*(?:/\*(.*?)\*/|<!--(.*?)-->|((?://[^\n]*\n)+))", text, re.DOTALL)
        docstring = next(filter(None, comment.groups())).replace("//", "") if comment else ""
    return re.split(r"(?<=[.])\s", " ".join(docstring.split()))[0].rstrip(".").replace("`", "")


if __name__ == "__main__":
    before = README.read_text(encoding="utf-8")
    head, rest = before.split("## File map", 1)
    tail = rest.replace(map_section(before), refreshed_map(before), 1)
    README.write_text(head + "## File map" + tail, encoding="utf-8")
