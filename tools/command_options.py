"""Generates the list of all options at the end of ``docs/commands.md`` from the parsers.

python tools/command_options.py            # write it after a change
python tools/command_options.py --check    # fail if it is stale
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mars_runtime.__main__ import COMMANDS, SentenceParser  # noqa: E402

DOCUMENT = ROOT / "docs" / "commands.md"
BEGIN, END = "<!-- python tools/command_options.py -->\n", "<!-- end -->\n"


def main() -> int:
    """Write the list, or report that it is stale. Returns the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if it is stale")
    is_check = parser.parse_args().check
    text = DOCUMENT.read_text("utf-8")
    if text == (current := with_options(text)):
        return 0
    if not is_check:
        DOCUMENT.write_text(current, "utf-8")
    print(f"{DOCUMENT.relative_to(ROOT)} is {'stale' if is_check else 'written'}")
    return int(is_check)


def with_options(document: str) -> str:
    """Return ``document`` with the current options between its two markers."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    root = SentenceParser()
    commands = root.add_subparsers()
    for module, _ in COMMANDS.values():
        importlib.import_module(module).add_parser(commands)
    lines = [line for name, parser in commands.choices.items() for line in _section(name, parser)]
    return f"{before}{BEGIN}{chr(10).join(lines)}\n{END}{after}"


def _section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield heading, description and options of a command, then those of its subcommands."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    rows = [
        action
        for action in actions
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS
    ]
    yield from ("", f"### `{name}`")
    if name in COMMANDS:
        what = COMMANDS[name][1]
        yield from ("", f"{what[:1].upper()}{what[1:]}.")
    if rows:
        yield from ("", "| option | meaning |", "| :-- | :-- |")
    for row in rows:
        options = ", ".join(f"`{option}`" for option in row.option_strings or [row.dest.upper()])
        yield f"| {options} | {_meaning(row)} |"
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            for subcommand, of in action.choices.items():
                yield from _section(f"{name} {subcommand}", of)


def _meaning(action: argparse.Action) -> str:
    """Return the help of an option, with its choices and its default where the help lacks them."""
    parts = [(action.help or "") % vars(action)]
    choices = [str(choice) for choice in action.choices or ()]
    if not all(choice in parts[0] for choice in choices):
        parts.append(f"one of {', '.join(choices)}")
    values = action.default if isinstance(action.default, list) else [action.default]
    default = " ".join(
        value.as_posix() if isinstance(value, Path) else str(value) for value in values
    )
    if default not in ("None", "False", "", "inf") and default not in parts[0]:
        parts.append(f"default {default}")
    return "; ".join(filter(None, parts)).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
