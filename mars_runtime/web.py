"""Static files of the page: scripts and styles of ``assets/web/`` bundled into one piece each, HTML
with addresses filled in, data for script elements, and plotly.js.

The scripts are ES modules. In the bundle each becomes a function that returns its exports, in an
order in which imports come first. The result is one script, which a page fetches or inlines.
"""

from __future__ import annotations

import html
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mars_runtime.places import ASSETS

WEB = ASSETS / "web"
STYLES = (
    "core/tokens.css",
    "core/help.css",
    "views/race/layout.css",
    "text/text.css",
    "text/rendered.css",
    "views/race/lens.css",
    "views/race/panels.css",
    "views/race/player.css",
    "views/race/passes.css",
    "panels/why.css",
    "panels/whatif.css",
    "panels/statistics.css",
    "panels/against_ar.css",
    "panels/cache.css",
    "panels/layers.css",
    "views/conversation/conversation.css",
    "views/batch/batch.css",
    "export/menu.css",
    "views/compare/compare.css",
    "explain/explain.css",
    "tour/present.css",
    "views/grid/grid.css",
    "views/load/load.css",
    "views/stability/stability.css",
    "views/frontier/frontier.css",
)
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:const|class|function) (\w+))", re.MULTILINE)
OTHER = re.compile(
    r"^(?:.*;)?[ \t]*(?:import|export)\b.*$"  # other forms of import or export
    r"|(?<![.\w])import\s*[(.].*$"  # import(...) and import.meta
    r"|^(?:(?:const|let) [^=]*= )?await\b.*$",  # top-level await
    re.MULTILINE,
)


class BundleError(ValueError):
    """A module uses a form of import or export that the bundler does not support."""


@lru_cache(maxsize=6)
def bundle(entries: Sequence[str]) -> str:
    """Return a script that adds the ``mount...`` exports of ``entries`` to ``window.mars``.

    Raises BundleError if an import names nothing or leaves the folder; for any form other than
    ``import { a } from "./b.js";`` and ``export`` before a declaration of one name; and if two
    modules or two exports of entries have the same name.
    """
    order: dict[str, tuple[str, list[str]]] = {}
    for entry in entries:
        _add(entry, order)
    _refuse_twins({module: _name(module) for module in order})
    mounts = {
        f"{entry}: {name}": name
        for entry in entries
        for name in order[entry][1]
        if name.startswith("mount")
    }
    _refuse_twins(mounts)
    parts = [code for code, _ in order.values()]
    named = [f"{name}: {_name(where.split(': ')[0])}.{name}" for where, name in mounts.items()]
    parts.append(f"window.mars = {{ ...window.mars, {', '.join(named)} }};")
    return "(() => {\n" + "\n".join(parts) + "\n})();"


def styles() -> str:
    """Return all style sheets as one."""
    return "\n".join((WEB / name).read_text("utf-8") for name in STYLES)


def _add(name: str, order: dict[str, tuple[str, list[str]]], above: tuple[str, ...] = ()) -> None:
    """Append a module after the modules that it imports."""
    if name in order:
        return
    if name in above:
        raise BundleError(f"{name} imports itself by way of {above[-1]}.")
    try:
        source = (WEB / name).read_text("utf-8")
    except OSError as error:
        raise BundleError(
            f"{name}, which {above[-1] if above else 'the page'} asks for, is missing."
        ) from error
    if "</script" in source:
        raise BundleError(f"{name} holds the end of a script element.")
    for names, path in IMPORT.findall(source):
        target = _resolved(name, path)
        _add(target, order, (*above, name))
        missing = {name.strip() for name in names.split(",") if name.strip()} - {*order[target][1]}
        if missing:
            raise BundleError(f"{name}: {target} does not export {', '.join(sorted(missing))}.")
    exports = EXPORT.findall(source)
    body = IMPORT.sub(lambda match: _constants(name, match), EXPORT.sub("", source))
    if match := OTHER.search(body):
        raise BundleError(f"{name}: {match.group()!r} cannot be put together.")
    code = f"const {_name(name)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();"
    order[name] = (code, exports)


def _constants(name: str, match: re.Match[str]) -> str:
    return f"const {{{match.group(1)}}} = {_name(_resolved(name, match.group(2)))};"


def _resolved(name: str, path: str) -> str:
    target = (WEB / name).parent.joinpath(path).resolve()
    if not (path.startswith(".") and target.is_relative_to(WEB.resolve())):
        raise BundleError(f"{name}: {path!r} does not exist in the folder of modules.")
    return target.relative_to(WEB.resolve()).as_posix()


def _refuse_twins(names: Mapping[str, str]) -> None:
    """Reject duplicate names. names: owner -> its name."""
    seen: dict[str, str] = {}
    for where, name in names.items():
        if name in seen:
            raise BundleError(f"{seen[name]} and {where} would both be called {name}.")
        seen[name] = where


def _name(module: str) -> str:
    return "$" + re.sub(r"\W", "_", module.removesuffix(".js"))


def template(page: str, **addresses: str) -> str:
    """Return the HTML of ``page`` in ``assets/web/``, with each ``@name`` replaced by its
    address.
    """
    text = (WEB / page).read_text("utf-8")
    for name, address in addresses.items():
        text = text.replace(f"@{name}", html.escape(address))
    return text


def script_data(data: Mapping[str, Any]) -> str:
    """Return JSON for a script element, escaped so that it cannot end that element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def plotly_file() -> Path | None:
    """Return the path of plotly.js in the installed wheel; None if it has none."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return path.resolve() if path.is_file() else None
