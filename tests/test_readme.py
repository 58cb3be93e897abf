"""README and docs tell the truth: what they name exists, and the Space would start."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from mars_runtime.__main__ import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
CARDS = sorted((ROOT / "checkpoints").rglob("README.md"))
PAGES = [README, ROOT / "CONTRIBUTING.md", *DOCS, *CARDS]
FOLDERS = r"app|assets|checkpoints|docs|mars_runtime|tests|tools"


def name_of(page: Path) -> str:
    """Its path in the repository."""
    return str(page.relative_to(ROOT))


def commands(text: str) -> list[list[str]]:
    """The words of every command line with Python in the fenced blocks of ``text``."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [part for block in blocks for line in block.splitlines() for part in line.split("&&")]
    actual = [shlex.split(line) for line in lines if "python" in line]
    return [words[words.index("python") + 1 :] for words in actual if "python" in words]


def test_a_visitor_can_read_it() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_that_are_named_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", page.read_text(encoding="utf-8"))
    gone = [path for path in named if not (ROOT / path).exists()]
    assert not gone, f"{page.name} names {gone}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_local_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_package_is_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    assert listed.returncode == 0
    packages = {str(Path(name).parent) for name in listed.stdout.splitlines() if "/" in name}
    packages = {p for p in packages if re.fullmatch(r"(app|mars_runtime)(/\w+)?", p)}
    missing = sorted(package for package in packages if f"`{package}/`" not in text)
    assert not missing, f"docs/architecture.md says nothing of {missing}"


def test_every_term_of_the_glossary_names_the_file_that_defines_it() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("## Glossary\n")[1].split("\n## ")[0]
    rows = section.strip().splitlines()[2:]
    files = [re.fullmatch(r"\| .+ \| .+ \| `([\w./]+)` \|", row) for row in rows]
    assert 20 < len(rows) <= 60
    assert [row for row, file in zip(rows, files, strict=True) if file is None] == []
    assert [file[1] for file in files if file and not (ROOT / file[1]).exists()] == []


@pytest.mark.parametrize(
    ("title", "first", "last", "most"),
    [
        (
            "From Run to the acceptance rule",
            *("app/live/tab.py", "mars_runtime/acceptance.py", 12),
        ),
        (
            "From a checkpoint's name to its weights",
            *("app/engines/engines.py", "mars_runtime/model/build.py", 8),
        ),
    ],
)
def test_a_way_through_the_files_exists(title: str, first: str, last: str, most: int) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w./]+)` \| (.+?) \|", section, re.MULTILINE)
    assert (rows[0][0], rows[-1][0]) == (first, last)
    assert len(rows) <= most
    for path, functions in rows:
        source = (ROOT / path).read_text(encoding="utf-8")
        for owner, function in re.findall(r"`(?:(\w+)\.)?(\w+)`", functions):
            assert f"def {function}(" in source, f"{path} has no {function}"
            assert not owner or re.search(rf"^class {owner}\b", source, re.MULTILINE), owner


PROGRAMS = [
    *(["-m", "mars_runtime", name] for name in COMMANDS),
    *(["-m", "mars_runtime", "verify", name] for name in ("lossless", "sampling", "logits")),
    *(["-m", "mars_runtime", "review", name] for name in ("make", "show", "export", "merge")),
    ["-m", "app.deploy"],
    ["-m", "tools.make_site"],
    ["-m", "tools.record_runs"],
    ["-m", "tools.record_tabs"],
    ["-m", "tools.measure_examples"],
    ["-m", "tools.measure_presets"],
    ["tools/system_prompts.py"],
    ["tools/human_loops.py"],
    ["tools/compare_trees.py"],
    ["tools/measure_gpu.py"],
    ["tools/arm_instructions.py"],
    ["tools/command_options.py"],
    ["app.py"],
    ["tools/soak.py"],
    ["tools/clients.py"],
    ["tools/measure_serving.py"],
]


def named() -> list[tuple[str, list[str], list[str]]]:
    """(page, program, options) of each command of the pages; the program is the longest that fits,
    or empty where there is none."""
    collected = []
    for page in PAGES:
        for words in commands(page.read_text(encoding="utf-8")):
            if words[:2] != ["-m", "pytest"]:
                fits = [program for program in PROGRAMS if words[: len(program)] == program]
                options = [word for word in words if word.startswith("--")]
                collected.append((name_of(page), max(fits, key=len, default=[]), options))
    return collected


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=" ".join)
def test_options_exist(
    program: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_module = program[0] == "-m"
    monkeypatch.setattr(sys, "argv", [*program[is_module:], "--help"])
    run = runpy.run_module if is_module else runpy.run_path
    with pytest.raises(SystemExit) as ended:
        run(program[1] if is_module else str(ROOT / program[0]), run_name="__main__")
    assert not ended.value.code
    said = capsys.readouterr().out
    for page, its_program, options in named():
        if its_program == program:
            assert [o for o in options if o not in said] == [], f"{page}: {program}"


def test_commands_exist() -> None:
    actual = named()
    assert len(actual) > 10
    assert [page for page, program, _ in actual if not program] == []


def test_the_space_would_start() -> None:
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
    """The requirements of a file, one per line."""
    return (ROOT / name).read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_requirements_are_bounded_and_met_here(name: str) -> None:
    from packaging.requirements import Requirement

    lines = [line for line in (ROOT / name).read_text().splitlines() if line[:2] != "-r"]
    for requirement in map(Requirement, lines):
        operators = {part.operator for part in requirement.specifier}
        assert operators & {"<", "<=", "=="}, f"{requirement} has no upper bound"
        actual = metadata.version(requirement.name)
        assert requirement.specifier.contains(actual), f"{requirement}, but here is {actual}"


def test_the_two_commands_are_those_that_work() -> None:
    text = README.read_text(encoding="utf-8")
    assert "pip install -r requirements.txt && python app.py" in text
    assert "pip install -r requirements-dev.txt && python -m pytest" in text
    assert "\npython -m pytest" in (ROOT / ".ci" / "run").read_text()


def test_settings_that_are_named_are_read() -> None:
    from dataclasses import fields

    from app.settings import PREFIX, AppSettings

    known = {PREFIX + field.name.upper() for field in fields(AppSettings)}
    known |= {"MARS_CACHE", "MARS_BENCHMARKS", "MARS_OFFICIAL"}  # of the runtime, and of its tests
    for page in PAGES:
        named = set(re.findall(r"\bMARS_[A-Z_]+\b", page.read_text(encoding="utf-8")))
        assert named <= known, f"{page.name} names {sorted(named - known)}"
