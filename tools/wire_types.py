"""Writes the JavaScript copy of what Python defines: constants, tables and types of trace lines."""

from __future__ import annotations

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

from app.live.order import BRANCH_TITLE, LINKS, MAX_TURNS  # noqa: E402
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
from mars_runtime.settings import OBEYED_BY_ALL, SETTINGS, DecodeSettings  # noqa: E402

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


def main() -> None:
    for path, text in files().items():
        if path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT))


def files() -> dict[Path, str]:
    return {
        WEB / "core" / "table.js": "\n".join(_table()) + "\n",
        WEB / "types" / "wire.d.ts": "\n".join(_types()) + "\n",
        ROOT / "tests" / "web" / "acceptance.json": "[\n" + ",\n".join(_acceptances()) + "\n]\n",
    }


def _acceptances() -> Iterator[str]:
    """Yield cases of the acceptance rule for the page's tests."""
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
        proposals = [proposal[:2] for proposal in (choice, *group)]
        case = {"tau": tau, "ends": sorted(ends), "proposals": proposals}
        case |= {"lossless": settings.lossless, "stop": accepted.stop, "remaining": remaining}
        count = len(accepted.drafts if settings.lossless else accepted.emitted)
        yield json.dumps(case | {"count": count})


def _table() -> Iterator[str]:
    yield f"{WRITTEN} from the constants of Python."
    yield from _constant(
        "METHODS",
        "The decoding methods. `drafts`: what proposes tokens; `obeys`: the settings that "
        "act on the method; `isExact`: whether its text is always AR's.",
        {
            name: {
                "title": facts.title,
                "obeys": [setting for setting in SETTINGS if setting in facts.obeys],
                "drafts": facts.drafts,
                "isExact": facts.is_exact,
                "isReference": facts.is_reference,
                "isGuessing": facts.is_guessing,
                "needsDraftModel": facts.needs_draft_model,
            }
            for name, facts in LANES.items()
        },
        "Record<string, MethodFacts>",
    )
    yield from _constant(
        "SETTINGS",
        "The settings of a run. `isShown`: whether it has a control; `isSteered`: whether it can "
        "change during a run; `isCommon`: whether it acts on all methods.",
        {
            name: {
                "isShown": name in SHOWN,
                "isSteered": name in STEERED_SETTINGS,
                "isCommon": name in OBEYED_BY_ALL,
            }
            for name in SETTINGS
        },
        "Record<keyof Settings, { isShown: boolean, isSteered: boolean, isCommon: boolean }>",
    )
    yield from _constant(
        "TAUS",
        "The page's τ of each mode, until the visitor moves it.",
        {"lossless": DEFAULTS.tau, "unverified": UNVERIFIED_TAU},
    )
    yield from _constant(
        "SPEED",
        "Limits for reporting a speedup, and texts for why it is not reported; see "
        "mars_runtime/runs/speedup.py.",
        {"least": speedup.MIN_TIMED_TOKENS, "apart": speedup.MIN_UNCERTAINTY,
            "near": speedup.NEAR_RATIO, "rounding": speedup.ROUNDING,
            "slack": speedup.LIMIT_TOLERANCE, "notes": speedup.NOTES},
        "{ least: number, apart: number, near: number, rounding: number, slack: number, "
        "notes: Record<string, string> }",
    )  # fmt: skip
    yield from _constant(
        "REVIEW",
        "Limits of a set to review. `line`, `file`: bytes of a line, and of a file that the page "
        "opens; `items`, `methods`: their number; `making`: prompts of a set that the page makes; "
        "`text`, `name`, `note`: characters.",
        {"line": sets.MAX_LINE, "file": sets.MAX_PAGE_FILE, "items": sets.MAX_ITEMS,
            "methods": sets.MAX_METHODS, "making": sets.MAX_PAGE_ITEMS, "text": sets.MAX_TEXT,
            "name": sets.MAX_NAME, "note": sets.MAX_NOTE},
    )  # fmt: skip
    server = AppSettings()
    yield from _constant(
        "LIMITS",
        "The largest values that the server accepts. `drafts`: number of drafts that one pass "
        "verifies. `body`: bytes of a request, `tokens`: tokens of an answer, and `imported`: "
        "bytes of an imported run, on a server with default settings. `turns`: turns of a "
        "conversation.",
        {"drafts": MAX_DRAFTS, "body": server.max_body_bytes, "tokens": server.max_new_tokens,
            "imported": server.max_import_bytes, "turns": MAX_TURNS},
    )  # fmt: skip
    yield from _constant(
        "SOURCE_LETTERS",
        "The letters of tokens' sources in trace lines (mars_runtime/runs/annotations.py).",
        {letter: source for source, letter in LETTERS.items()},
        "Record<string, Source>",
    )
    for name, says, value in (
        ("COMPUTED", "Characters at the start of a cell that a spreadsheet takes for a formula.",
            sets.FORMULA_STARTS),
        ("FINAL_STOPS", "The stop reasons with which a text is complete.", sorted(FINAL)),
        ("DATA_PLACE", "The placeholder in a page's file that the page's data replaces.", PLACE),
        ("BRANCH_TITLE", "The title of a lane that continues given tokens.", BRANCH_TITLE),
        ("LINKED", "The names of the prompt and the controls in links.", sorted(LINKS.values())),
    ):  # fmt: skip
        yield from _constant(name, says, value)


def _constant(name: str, says: str, value: Any, kind: str = "") -> Iterator[str]:
    yield from ("", *textwrap.wrap(says, 120, initial_indent="// ", subsequent_indent="// "))
    yield from ([f"/** @type {{{kind}}} */"] if kind else [])
    if not isinstance(value, Mapping):
        line = f"export const {name} = {json.dumps(value)};"
        yield from (["// prettier-ignore", line] if len(line) > 120 else [line])
        return
    yield from ("// prettier-ignore", f"export const {name} = {{")
    yield from (f"  {key}: {_literal(item)}," for key, item in value.items())
    yield "};"


def _literal(value: Any) -> str:
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return f"{{ {', '.join(f'{name}: {_literal(item)}' for name, item in value.items())} }}"


def _types() -> Iterator[str]:
    yield f"{WRITTEN} from mars_runtime/runs/events.py, annotations.py and trace.py."
    schemas = {kind: TypeAdapter(kind).json_schema(ref_template="{model}") for kind in KINDS}
    shared: dict[str, Schema] = {}
    for schema in schemas.values():
        shared |= schema.get("$defs", {})
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
        yield from ("", f"interface {_event(kind)} {{", f'  type: "{KINDS[kind]}";')
        yield from _fields(schema, is_whole=kind is Header, needed=NEEDED[KINDS[kind]])
        yield from ([VOCABULARY] if kind in (Header, Step) else [])
        yield "}"
    yield from ("", f"type TraceEvent = {' | '.join(map(_event, KINDS))};")


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
    main()
