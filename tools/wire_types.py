"""Generates the JavaScript copy of what Python defines: constants, tables and types of trace lines.

python tools/wire_types.py            # write all files after a change
python tools/wire_types.py --check    # fail if a file is stale
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from pydantic import TypeAdapter  # noqa: E402

from app.live.order import BRANCH_TITLE, MAX_TURNS  # noqa: E402
from app.settings import AppSettings  # noqa: E402
from app.ui.controls import DEFAULTS, SHOWN, STEERED_SETTINGS, UNVERIFIED_TAU  # noqa: E402
from mars_runtime.decoders.decision import accept  # noqa: E402
from mars_runtime.decoders.methods import LANES, MAX_DRAFTS  # noqa: E402
from mars_runtime.display.replay_page import PLACE  # noqa: E402
from mars_runtime.review import sets  # noqa: E402
from mars_runtime.runs import speedup  # noqa: E402
from mars_runtime.runs.annotations import LETTERS, Annotations  # noqa: E402
from mars_runtime.runs.events import FINAL, End, Prefill, Proposal, Step  # noqa: E402
from mars_runtime.runs.trace import NEEDED, Header  # noqa: E402
from mars_runtime.settings import (  # noqa: E402
    OBEYED_BY_ALL,
    SETTINGS,
    DecodeSettings,
)

WEB = ROOT / "assets" / "web"
WRITTEN = "// Written by `python tools/wire_types.py`"
KINDS = {Header: "header", Prefill: "prefill", Step: "step", End: "end"}
NAMES = {"DecodeSettings": "Settings", "Turn": "EarlierTurn"}
"""Classes with another name in the page's scripts."""
ON_CHANGE = {"settings"}
"""Fields of a row that are written only with its first step and when they change."""
VOCABULARY = "  vocabulary?: Vocabulary;"
WORDS = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean"}
Schema = Mapping[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail where it differs")
    is_check = parser.parse_args().check
    stale = [path for path, text in files().items() if path.read_text("utf-8") != text]
    for path in stale:
        if not is_check:
            path.write_text(files()[path], "utf-8")
        print(f"{path.relative_to(ROOT)} is {'stale' if is_check else 'written'}")
    return int(is_check and bool(stale))


def files() -> dict[Path, str]:
    return {
        WEB / "core" / "table.js": "\n".join(_table()) + "\n",
        WEB / "types" / "wire.d.ts": "\n".join(_types()) + "\n",
        ROOT / "tests" / "web" / "acceptance.json": "[\n" + ",\n".join(_acceptances()) + "\n]\n",
    }


def _acceptances() -> Iterator[str]:
    """Yield cases of the acceptance rule for the page's tests: proposals, and how many are
    accepted.
    """
    rng, ends = random.Random(3), frozenset({2})
    for number in range(32):
        tau, size = rng.choice((0.0, 0.5, 0.9, 1.0)), rng.randint(1, 6)
        choice, *group = (
            Proposal(rng.choice((2, 3, 4, 5, 6, 7)), rng.choice((0.5, 0.9, 0.95, 1.0)), ())
            for _ in range(size)
        )
        drafts = [8] if number % 8 == 7 else []  # AR rejects this draft
        settings = DecodeSettings(tau=tau, lossless=number % 2 == 1)
        remaining = 2 if number % 8 == 5 else size
        accepted = accept([choice, choice], [group, []], drafts, settings, remaining, ends)
        yield json.dumps(
            {
                "tau": tau,
                "ends": sorted(ends),
                "proposals": [proposal[:2] for proposal in (choice, *group)],
                "lossless": settings.lossless,
                "stop": accepted.stop,
                "remaining": remaining,
                "count": len(accepted.drafts if settings.lossless else accepted.emitted),
            }
        )


def _table() -> Iterator[str]:
    yield f"{WRITTEN} from the constants of Python."
    yield from _constant(
        "METHODS",
        "The decoding methods. `drafts`: what proposes tokens; `obeys`: the settings that "
        "act on the method; `isExact`: whether its text is always AR's.",
        "Record<string, MethodFacts>",
        {
            name: _object(
                title=facts.title,
                obeys=[setting for setting in SETTINGS if setting in facts.obeys],
                drafts=facts.drafts,
                isExact=facts.is_exact,
                isReference=facts.is_reference,
                isGuessing=facts.is_guessing,
                needsDraftModel=facts.needs_draft_model,
            )
            for name, facts in LANES.items()
        },
    )
    yield from _constant(
        "SETTINGS",
        "The settings of a run. `isShown`: whether it has a control; `isSteered`: whether it can "
        "change during a run; `isCommon`: whether it acts on all methods.",
        "Record<keyof Settings, { isShown: boolean, isSteered: boolean, isCommon: boolean }>",
        {
            name: _object(
                isShown=name in SHOWN,
                isSteered=name in STEERED_SETTINGS,
                isCommon=name in OBEYED_BY_ALL,
            )
            for name in SETTINGS
        },
    )
    yield "// The page's τ of each mode, until the visitor moves it."
    yield f"export const TAUS = {_object(lossless=DEFAULTS.tau, unverified=UNVERIFIED_TAU)};"
    yield from _constant(
        "SPEED",
        "Limits for reporting a speedup, and texts for why it is not reported; see "
        "mars_runtime/runs/speedup.py.",
        "{ least: number, apart: number, near: number, rounding: number, slack: number, "
        "notes: Record<string, string> }",
        {
            "least": str(speedup.MIN_TIMED_TOKENS),
            "apart": str(speedup.MIN_UNCERTAINTY),
            "near": str(speedup.NEAR_RATIO),
            "rounding": str(speedup.ROUNDING),
            "slack": str(speedup.LIMIT_TOLERANCE),
            "notes": _object(**speedup.NOTES),
        },
    )
    yield from _constant(
        "REVIEW",
        "Limits of a set to review. `line`, `file`: bytes of a line, and of a file that the page "
        "opens; `items`, `methods`: their number; `making`: prompts of a set that the page makes; "
        "`text`, `name`, `note`: characters.",
        "Record<string, number>",
        {
            "line": str(sets.MAX_LINE),
            "file": str(sets.MAX_PAGE_FILE),
            "items": str(sets.MAX_ITEMS),
            "methods": str(sets.MAX_METHODS),
            "making": str(sets.MAX_PAGE_ITEMS),
            "text": str(sets.MAX_TEXT),
            "name": str(sets.MAX_NAME),
            "note": str(sets.MAX_NOTE),
        },
    )
    yield from (
        "",
        "// The characters at the start of a cell that make a spreadsheet treat it as a formula.",
    )
    yield f"export const COMPUTED = {json.dumps(sets.FORMULA_STARTS)};"
    server = AppSettings()
    yield from _constant(
        "LIMITS",
        "The largest values that the server accepts. `drafts`: number of drafts that one pass "
        "verifies. `body`: bytes of a request, `tokens`: tokens of an answer, and `imported`: "
        "bytes of an imported run, on a server with default settings. `turns`: turns of a "
        "conversation.",
        "{ drafts: number, body: number, tokens: number, imported: number, turns: number }",
        {
            "drafts": str(MAX_DRAFTS),
            "body": str(server.max_body_bytes),
            "tokens": str(server.max_new_tokens),
            "imported": str(server.max_import_bytes),
            "turns": str(MAX_TURNS),
        },
    )
    yield from (
        "",
        "// The letters of tokens' sources in trace lines (mars_runtime/runs/annotations.py).",
        "/** @type {Record<string, Source>} */",
    )
    letters = {letter: source for source, letter in LETTERS.items()}
    yield f"export const SOURCE_LETTERS = {_object(**letters)};"
    yield ""
    yield "// The stop reasons with which a text is complete."
    yield f"export const FINAL_STOPS = {json.dumps(sorted(FINAL))};"
    yield "// The placeholder in a page's file that is replaced by the page's data."
    yield f"export const DATA_PLACE = {json.dumps(PLACE)};"
    yield "// The title of a lane that continues given tokens."
    yield f"export const BRANCH_TITLE = {json.dumps(BRANCH_TITLE)};"


def _constant(name: str, says: str, kind: str, lines: Mapping[str, str]) -> Iterator[str]:
    yield from ("", *textwrap.wrap(says, 120, initial_indent="// ", subsequent_indent="// "))
    yield from (f"/** @type {{{kind}}} */", "// prettier-ignore")
    yield f"export const {name} = {{"
    yield from (f"  {key}: {value}," for key, value in lines.items())
    yield "};"


def _object(**values: Any) -> str:
    entries = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    return f"{{ {', '.join(entries)} }}"


def _types() -> Iterator[str]:
    yield f"{WRITTEN} from mars_runtime/runs/events.py, annotations.py and trace.py."
    schemas = {kind: TypeAdapter(kind).json_schema(ref_template="{model}") for kind in KINDS}
    shared = {
        name: definition
        for schema in schemas.values()
        for name, definition in schema.get("$defs", {}).items()
    }
    for name, schema in shared.items():
        yield ""
        if "prefixItems" in schema:
            yield f"type {NAMES.get(name, name)} = {type_of(schema)};"
            continue
        yield f"interface {NAMES.get(name, name)} {{"
        yield from _fields(schema, is_whole=name != "RowStep")
        if name == "RowStep":
            yield from _fields({"properties": dict(_annotations())}, is_whole=False)
        yield "}"
    for kind, schema in schemas.items():
        yield ""
        yield f"interface {_event(kind)} {{"
        yield f'  type: "{KINDS[kind]}";'
        yield from _fields(schema, is_whole=kind is Header, needed=NEEDED[KINDS[kind]])
        if kind in (Header, Step):
            yield VOCABULARY
        yield "}"
    yield ""
    yield f"type TraceEvent = {' | '.join(map(_event, KINDS))};"


def _annotations() -> Iterator[tuple[str, Schema]]:
    for name, kind in get_type_hints(Annotations).items():
        yield name, TypeAdapter(kind).json_schema()


def _event(kind: type) -> str:
    return f"{kind.__name__}Event"


def _fields(schema: Schema, *, is_whole: bool, needed: Sequence[str] = ()) -> Iterator[str]:
    """is_whole: every field is in every line; otherwise fields with a default are optional."""
    for name, property_schema in schema["properties"].items():
        is_told = name in schema.get("required", ()) and name not in ON_CHANGE
        is_there = is_whole or is_told or name in needed
        yield f"  {name}{'' if is_there else '?'}: {type_of(property_schema, is_there)};"


def type_of(schema: Schema, has_null: bool = True) -> str:
    """Return the TypeScript type of a JSON schema, without its null unless ``has_null``."""
    if "$ref" in schema:
        return NAMES.get(schema["$ref"], schema["$ref"])
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if has_null or kind.get("type") != "null"]
        return " | ".join(map(type_of, kinds))
    if "const" in schema or "enum" in schema:
        return " | ".join(map(json.dumps, schema.get("enum") or [schema["const"]]))
    if "prefixItems" in schema:
        return f"[{', '.join(map(_item, schema['prefixItems']))}]"
    kind = schema.get("type")
    if kind == "array":
        return f"{type_of(schema['items'])}[]"
    if kind == "object":
        rest = schema.get("additionalProperties", True)
        return f"Record<string, {'unknown' if rest is True else type_of(rest)}>"
    return WORDS.get(str(kind), str(kind))


def _item(schema: Schema) -> str:
    title = schema.get("title", "")
    return f"{title.replace(' ', '_').lower()}: {type_of(schema)}" if title else type_of(schema)


if __name__ == "__main__":
    sys.exit(main())
