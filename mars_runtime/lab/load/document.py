"""What a run of the ``load`` command found, as JSON and as Markdown. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mars_runtime.lab.tables import NONE, Table
from mars_runtime.provenance import Quiet
from mars_runtime.statistics import Estimate

VERSION = 1


@dataclass(frozen=True, slots=True)
class Section:
    """The answer to one question. told: sentences above its table; data: plain values."""

    name: str
    told: tuple[str, ...]
    table: Table
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Document:
    """origin: date, commit, hardware, versions (``provenance``). subject: what was decoded: name,
    fingerprint, dtype. asked: the arguments. is_whole: off where the run was stopped."""

    origin: Mapping[str, Any]
    subject: Mapping[str, Any]
    asked: Mapping[str, Any]
    quiet: Quiet
    sections: Sequence[Section]
    is_whole: bool

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before believing a figure."""
        found = [] if self.is_whole else ["The run was stopped: some parts are missing or short."]
        if doubts := self.quiet.doubts:
            found.append(
                f"The machine was too busy to be believed: {'; '.join(doubts)}. "
                "Take these figures for a hint and measure again when it is quiet."
            )
        return found

    @property
    def place(self) -> str:
        """On what and with what, in a line."""
        hardware, subject = self.origin["hardware"], self.subject
        machine = [hardware["processor"], f"{hardware['cores']} cores", *hardware["gpus"]]
        what = [str(subject["name"]), str(subject["dtype"]), f"{subject['threads']} threads"]
        return "; ".join([", ".join(what), ", ".join(machine)])

    def to_markdown(self) -> str:
        """Where it ran, what to doubt and every section."""
        versions = self.origin["versions"].items()
        head = [f"# Under load: {self.subject['name']}", self.place]
        head.append(", ".join(f"{name} {version}" for name, version in versions))
        head.append(f"{self.origin['date']}, commit {self.origin['commit']}")
        head += [f"> {warning}" for warning in self.warnings]
        for section in self.sections:
            head += [*section.told, section.table.to_markdown()]
        return "\n\n".join(head) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kind": "load",
            "version": VERSION,
            **self.origin,
            "subject": dict(self.subject),
            "asked": dict(self.asked),
            "is_whole": self.is_whole,
            "warnings": self.warnings,
            "sections": {section.name: dict(section.data) for section in self.sections},
        }


def told(found: Estimate | None, unit: float = 1.0, form: str = ".2f") -> str:
    """``1.93 [1.88, 1.99]`` in a unit, or a dash."""
    if found is None:
        return NONE
    value, low, high = (unit * each for each in (found.value, found.low, found.high))
    return f"{value:{form}} [{low:{form}}, {high:{form}}]"
