"""Plants fifty defects, one at a time, and reports which test catches each.

    python tools/planted_defects.py --check        # whether each place is still where it was
    python tools/planted_defects.py                # each against the tests most likely to catch it
    python tools/planted_defects.py --only clock --whole

A defect is a small exact replacement in one file, made in a copy of the working tree. To re-target
one after its code has moved, change only its line in DEFECTS: a text that is not found exactly once
is rejected. ``--whole`` runs all tests that are not slow on missed defects.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NODE = "node"  # instead of a Python test: all tests of the browser's folds
SECONDS = 600.0  # for the likely tests of one defect; the whole suite gets four times as many


class Defect(NamedTuple):
    """A replacement of ``old`` by ``new`` in ``file``. tests: the tests that are most likely to
    catch it, in the order in which to run them.
    """

    kind: str
    file: str
    old: str
    new: str
    tests: Sequence[str]


class Found(NamedTuple):
    """Result for a defect: the test that caught it, or "" if no test did."""

    defect: Defect
    caught_by: str


ACCEPT, MASK, STALE = "off-by-one in acceptance", "wrong mask", "stale chart"
SETTING, LANE, ROW = "lost setting", "swapped lane", "leaked row"
TEXT, CLOCK, EVENT = "unescaped text", "wrong clock", "dropped event"
IMPORT, CONSTANT, ALIAS = "refused import accepted", "stale constant", "lost alias"
PROXY, COST, PREFIX = "wrong proxy path", "wrong cost", "wrong prefix"
VOTE, LIMIT, REQUEST = "vote of the other side", "wrong limit", "wrong request"
RUNTIME, WEB = "mars_runtime", "assets/web"
SERVED = "tests/serving/test_openai.py"
FORESEEN = ("tests/test_laws.py", "tests/decoders")
RACE = "tests/app/components/test_race_view"

DEFECTS = (
    Defect(
        ACCEPT,
        f"{RUNTIME}/acceptance.py",
        "if count and not confidence >= tau:",
        "if count > 1 and not confidence >= tau:",
        ("tests/test_acceptance.py", *FORESEEN),
    ),
    Defect(
        ACCEPT,
        f"{RUNTIME}/acceptance.py",
        "num_emitted = num_agreed + 1 if settings.is_verified else end",
        "num_emitted = num_agreed + 2 if settings.is_verified else end",
        ("tests/test_acceptance.py", *FORESEEN),
    ),
    Defect(
        ACCEPT,
        f"{RUNTIME}/acceptance.py",
        "num_useful = remaining - num_drafts - 1 if settings.is_verified else remaining",
        "num_useful = remaining - num_drafts if settings.is_verified else remaining",
        ("tests/test_acceptance.py", *FORESEEN),
    ),
    Defect(
        MASK,
        f"{RUNTIME}/model/attention.py",
        "is_behind_root = slot >= first + branches.roots.unsqueeze(2)",
        "is_behind_root = slot > first + branches.roots.unsqueeze(2)",
        ("tests/model/test_transformer.py", "tests/decoders/test_groups.py", *FORESEEN),
    ),
    Defect(
        MASK,
        f"{RUNTIME}/model/forward.py",
        "torch.where(plain < num_pending, plain, width - 1)",
        "torch.where(plain <= num_pending, plain, width - 1)",
        ("tests/model/test_transformer.py", "tests/test_laws_diffusion.py", *FORESEEN),
    ),
    Defect(
        MASK,
        f"{RUNTIME}/model/forward.py",
        "positions += range(root, root + count)",
        "positions += range(root + 1, root + 1 + count)",
        ("tests/model/test_transformer.py",),
    ),
    Defect(
        STALE,
        f"{WEB}/panels/shown.js",
        '${view.shown(lane).end ? "." : ""}',
        "",
        (NODE, "tests/app/components/test_panels.py", f"{RACE}.py"),
    ),
    Defect(
        STALE,
        f"{WEB}/charts/charts.js",
        "for (const { key } of CHARTS) this.dirty.add(key);",
        "for (const [key] of CHARTS.slice(0, 1)) this.dirty.add(key);",
        (f"{RACE}.py", "tests/app/components/test_charts_drawn.py"),
    ),
    Defect(
        STALE,
        f"{WEB}/charts/plots.js",
        "if (!figure) continue;",
        'if (!figure || node.classList.contains("js-plotly-plot")) continue;',
        ("tests/app/test_load_lab.py",),
    ),
    Defect(
        SETTING,
        "app/ui/controls.py",
        "for name in LIVE_SETTINGS if name in STEERED)",
        "for name in LIVE_SETTINGS if name in {*STEERED} - {'metric'})",
        ("tests/app/test_methods.py", "tests/app/test_handlers.py", "tests/app/test_bad_input.py"),
    ),
    Defect(
        SETTING,
        f"{WEB}/core/trace.js",
        "SETTINGS[name].isSteered || !SETTINGS[name].isCommon,",
        'name !== "mask_layout" && (SETTINGS[name].isSteered || !SETTINGS[name].isCommon),',
        (NODE, "tests/app/components/test_text_groups.py", f"{RACE}.py"),
    ),
    Defect(
        SETTING,
        "app/live/order.py",
        'values["auto"] = values["block_size"] == AUTO',
        'values["auto"] = False',
        ("tests/app/test_share.py",),
    ),
    Defect(
        LANE,
        "app/api/runs.py",
        "_comparison(mars.item(), ar.item(),",
        "_comparison(ar.item(), mars.item(),",
        ("tests/app/test_client.py",),
    ),
    Defect(
        LANE,
        f"{WEB}/core/folds.js",
        'lane.name !== "ar" && !lane.isAr',
        'lane.name === "ar" || lane.isAr',
        (NODE, "tests/app/components/test_player.py"),
    ),
    Defect(
        LANE,
        f"{RUNTIME}/decoders/rows.py",
        "self._rows[source], self._rows[target] = self._rows[target], self._rows[source]",
        "self._rows[source], self._rows[target] = self._rows[source], self._rows[target]",
        ("tests/decoders/test_batch.py",),
    ),
    Defect(
        ROW,
        f"{RUNTIME}/decoders/rows.py",
        "self._cache.clear(index, self._num_dirty[index])",
        "self._cache.clear(index, 0)",
        ("tests/decoders/test_batch.py", "tests/test_cache.py", "tests/test_laws.py"),
    ),
    Defect(
        ROW,
        f"{RUNTIME}/decoders/draft_model.py",
        "draft_row.batch.drop(row.number)",
        "beside.batch.rows",
        ("tests/decoders/test_speculative.py",),
    ),
    Defect(
        ROW,
        f"{RUNTIME}/decoders/rows.py",
        "if self._prefix_cache is None or not row.is_sound:",
        "if self._prefix_cache is None:",
        ("tests/decoders/test_prefix_reuse.py", "tests/engine/test_kept_prefixes.py"),
    ),
    Defect(
        TEXT,
        "app/ui/assets.py",
        "name: text if name == ROWS else html.escape(text)",
        "name: text",
        ("tests/app/components/test_explain.py",),
    ),
    Defect(
        TEXT,
        "mars_runtime/web.py",
        'return text.replace("<", "\\\\u003c")',
        "return text",
        ("tests/app/test_site.py", "tests/app/components"),
    ),
    Defect(
        TEXT,
        f"{WEB}/core/dom.js",
        "node.append(...content);",
        "for (const each of content)"
        ' typeof each === "string" ? node.insertAdjacentHTML("beforeend", each)'
        " : node.append(each);",
        (NODE, "tests/app/test_compare_tab.py", f"{RACE}.py", "tests/app/components"),
    ),
    Defect(
        CLOCK,
        f"{RUNTIME}/folds.py",
        "prefill_seconds(events) + first[1]",
        "first[1]",
        ("tests/test_folds.py",),
    ),
    Defect(
        CLOCK,
        f"{WEB}/core/trace.js",
        "clock: this.seconds,",
        "clock: this.seconds - event.seconds,",
        (NODE,),
    ),
    Defect(
        CLOCK,
        f"{RUNTIME}/engine/device.py",
        "_record(run, Step((replace(row, row=0),), seconds), seconds)",
        "_record(run, Step((replace(row, row=0),), seconds / len(runs)), seconds)",
        ("tests/engine/test_engine.py", "tests/engine/test_company.py", "tests/engine"),
    ),
    Defect(
        EVENT,
        f"{WEB}/core/wire.js",
        "this.isBehind = this.begin > this.taken;",
        "this.isBehind = this.begin > this.taken + 1;",
        (NODE, "tests/app/test_run_log.py"),
    ),
    Defect(
        EVENT,
        "app/ui/run_log.py",
        "begin = self._ends[0]",
        "begin = self._ends[-1]",
        ("tests/app/test_run_log.py",),
    ),
    Defect(
        EVENT,
        "app/ui/stream.py",
        "for line in transcript.read()",
        "for line in transcript.read()[:7]",
        ("tests/app/test_handlers.py",),
    ),
    Defect(
        IMPORT,
        f"{RUNTIME}/trace.py",
        "if row.start != self._num_emitted.get(row.row, 0):",
        "if row.start < self._num_emitted.get(row.row, 0):",
        ("tests/test_trace.py", "tests/attack/test_imported_texts.py"),
    ),
    Defect(
        IMPORT,
        f"{RUNTIME}/trace.py",
        "json.loads(line, parse_constant=_reject_constant)",
        "json.loads(line)",
        ("tests/test_trace.py", "tests/attack/test_imported_texts.py"),
    ),
    Defect(
        IMPORT,
        "app/ui/imported_runs.py",
        'if text.count("\\n") >= MAX_LINES:',
        'if text.count("\\n") >= 10 * MAX_LINES:',
        ("tests/app/test_recordings.py", "tests/attack/test_imported_texts.py"),
    ),
    Defect(
        CONSTANT,
        f"{RUNTIME}/loops.py",
        "MIN_REPEATED = 48",
        "MIN_REPEATED = 32",
        ("tests/test_loops.py",),
    ),
    Defect(
        ALIAS,
        f"{RUNTIME}/events.py",
        'Field(alias="commit")',
        'Field(alias="committed")',
        ("tests/test_trace.py", NODE, "tests/app/test_recordings.py"),
    ),
    Defect(
        PROXY,
        "app/gradio_compat.py",
        "text = re.sub(named, r'\\1\".\"', text)",
        "text = re.sub(named, r'\\1\"/\"', text)",
        ("tests/app/test_gradio_compat.py", "tests/app/test_behind_proxy.py"),
    ),
    Defect(
        PROXY,
        f"{RUNTIME}/serving/limits.py",
        "_without_port(addresses[-self._number])",
        "_without_port(addresses[0])",
        ("tests/serving/test_addresses.py",),
    ),
    Defect(
        LANE,
        f"{WEB}/views/compare/texts.js",
        "of aligned(base, words)",
        "of aligned(words, base)",
        (NODE, "tests/app/test_compare_tab.py"),
    ),
    Defect(
        ACCEPT,
        f"{RUNTIME}/acceptance.py",
        'num_agreed, [], "limit", proposals)',
        "num_agreed, [], stop, proposals)",
        ("tests/test_acceptance.py",),
    ),
    Defect(
        ACCEPT,
        f"{RUNTIME}/acceptance.py",
        "if draft != choice:",
        "if draft != choice and count != 1:",
        ("tests/test_acceptance.py", *FORESEEN),
    ),
    Defect(
        COST,
        f"{RUNTIME}/decoders/forward_costs.py",
        "return self.plain[width - 1] + (",
        "return self.plain[max(width - 2, 0)] + (",
        ("tests/decoders/test_adaptive.py",),
    ),
    Defect(
        TEXT,
        f"{RUNTIME}/review/exports.py",
        '<div class="prompt">{escape(item.prompt)}</div>',
        '<div class="prompt">{item.prompt}</div>',
        ("tests/review/test_review_exports.py",),
    ),
    Defect(
        TEXT,
        f"{RUNTIME}/review/exports.py",
        "if text.startswith(tuple(FORMULA_STARTS)) else text",
        "if text.startswith(tuple(FORMULA_STARTS)[:4]) else text",
        ("tests/review/test_review_exports.py",),
    ),
    Defect(
        PREFIX,
        f"{RUNTIME}/acceptance.py",
        "text[num_prompt : case[0]]",
        "text[: case[0]]",
        ("tests/test_law_penalty.py",),
    ),
    Defect(
        PREFIX,
        f"{RUNTIME}/acceptance.py",
        "position < first_end else",
        "position <= first_end else",
        ("tests/test_law_penalty.py",),
    ),
    Defect(
        PREFIX,
        f"{RUNTIME}/decoders/rows.py",
        "del final[final.index(self._mask_id) :]",
        "del final[len(final) :]",
        ("tests/decoders/test_prefix_reuse.py",),
    ),
    Defect(
        PREFIX,
        f"{RUNTIME}/decoders/rows.py",
        "final = row.text[: self._cache.cursors[index]]",
        "final = row.text[: self._cache.cursors[index] + 1]",
        ("tests/decoders/test_prefix_reuse.py", "tests/test_law_prefix.py"),
    ),
    Defect(
        VOTE,
        f"{RUNTIME}/review/judgements.py",
        '{"left": self.left, "right": self.right}',
        '{"left": self.right, "right": self.left}',
        ("tests/review/test_judgements.py",),
    ),
    Defect(
        VOTE,
        "app/review/library.py",
        '"left": drawn[0], "right": drawn[1]}',
        '"left": drawn[1], "right": drawn[0]}',
        ("tests/app/test_review_routes.py",),
    ),
    Defect(
        LIMIT,
        f"{RUNTIME}/serving/limits.py",
        "if self._num_running[address] >= self._most:",
        "if self._num_running.total() >= self._most:",
        ("tests/serving/test_addresses.py",),
    ),
    Defect(
        REQUEST,
        f"{RUNTIME}/serving/requests.py",
        "seed = (request.settings.seed + index) % NUM_SEEDS",
        "seed = request.settings.seed % NUM_SEEDS",
        (SERVED,),
    ),
    Defect(
        REQUEST,
        f"{RUNTIME}/serving/retry.py",
        "if attempt.has_begun:",
        "if attempt.is_over:",
        ("tests/serving/test_scale.py",),
    ),
    Defect(
        EVENT,
        f"{RUNTIME}/serving/answer.py",
        'return {"index": self._index,',
        'return {"index": 0,',
        (SERVED,),
    ),
)


def planted(text: str, defect: Defect) -> str:
    """Return the text of the file with the defect in it. Raises ValueError if ``old`` does not
    occur exactly once.
    """
    count = text.count(defect.old)
    if count != 1:
        raise ValueError(f"{defect.file} holds {count} times, not once: {defect.old.strip()}")
    return text.replace(defect.old, defect.new)


def catcher(root: Path, test: str, seconds: float) -> str:
    """Return the first test that fails in the tree at ``root``, or "" if all pass."""
    quick = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-rfE", "--no-header"]
    scripts = sorted(map(str, root.glob("tests/web/*.test.js")))
    command = ["node", "--test", *scripts] if test == NODE else [*quick, *test.split()]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"{test} (hangs)"
    if done.returncode == 0:
        return ""
    pattern = r"^not ok \d+ - (.*)|^✖ (.*?) \(" if test == NODE else r"^(?:FAILED|ERROR) (\S+)"
    named = re.search(pattern, done.stdout, re.MULTILINE)
    return next(filter(None, named.groups()), test) if named else f"{test} (does not run)"


def look(root: Path, defect: Defect, is_whole: bool) -> Found:
    """Plant the defect in the tree, run its tests and remove it."""
    file = root / defect.file
    sound = file.read_text("utf-8")
    file.write_text(planted(sound, defect), "utf-8")
    try:
        for test in defect.tests:
            if caught_by := catcher(root, test, SECONDS):
                return Found(defect, caught_by)
        return Found(defect, catcher(root, "tests", 4 * SECONDS) if is_whole else "")
    finally:
        file.write_text(sound, "utf-8")


def copy_tree(target: Path) -> None:
    """Copy the working tree without the files that git ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def main() -> int:
    """Return 0 if every defect was caught, 1 if one was missed, 2 if the text of a defect was not
    found.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="only check that the text of each defect occurs exactly once",
    )
    parser.add_argument(
        "--only", default="", help="run only defects whose kind or file contains this text"
    )
    parser.add_argument(
        "--whole", action="store_true", help="run all quick tests on missed defects"
    )
    args = parser.parse_args()
    wanted = [defect for defect in DEFECTS if args.only in f"{defect.kind} {defect.file}"]
    try:
        for defect in wanted:
            planted((ROOT / defect.file).read_text("utf-8"), defect)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if args.check:
        print(f"{len(wanted)} defects have their places.")
        return 0
    print("| defect | in | caught by |\n| :-- | :-- | :-- |", flush=True)
    num_missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        for defect in wanted:
            outcome = look(Path(folder), defect, args.whole)
            num_missed += not outcome.caught_by
            print(
                f"| {defect.kind} | {defect.file} | {outcome.caught_by or 'MISSED'} |", flush=True
            )
    print(f"{len(wanted) - num_missed} of {len(wanted)} caught.")
    return int(num_missed > 0)


if __name__ == "__main__":
    sys.exit(main())
