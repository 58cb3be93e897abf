"""Static files of the page: bundled scripts and styles, HTML templates and plotly.js.

The bundler turns ES modules into one script, which a page loads or inlines. Each module becomes a
function that returns its exports; a module is placed after the modules that it imports.
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

from mars_runtime.files.paths import ASSETS

WEB = ASSETS / "web"
STYLES = (
    "core/tokens.css",
    "core/help.css",
    "views/race/layout.css",
    "text/text.css",
    "views/race/player.css",
    "views/race/drawer.css",
    "views/conversation/conversation.css",
    "views/throughput/throughput.css",
    "export/menu.css",
    "views/review/review.css",
    "explain/explain.css",
    "tour/present.css",
    "views/grid/grid.css",
)
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:const|class|function) (\w+))", re.MULTILINE)
OTHER = re.compile(
    r"^(?:.*;)?[ \t]*(?:import|export)\b.*$"  # any form that IMPORT and EXPORT do not match
    r"|(?<![.\w])import\s*[(.].*$"  # import(...) and import.meta
    r"|^(?:(?:const|let) [^=]*= )?await\b.*$",  # top-level await
    re.MULTILINE,
)


class BundleError(ValueError):
    """A module uses a form of import or export that the bundler does not support."""


@lru_cache(maxsize=6)
def bundle(entries: Sequence[str]) -> str:
    """Bundle modules into a script that adds their ``mount...`` exports to ``window.mars``.

    entries: paths of the modules in ``assets/web/``. Raises BundleError if an import cannot be
    resolved, a module uses another form than ``import { a } from "./b.js";`` or ``export`` before a
    declaration, or two modules or two mount functions have the same name.
    """
    order: dict[str, tuple[str, list[str]]] = {}
    for entry in entries:
        _add(entry, order)
    _reject_duplicates({module: _name(module) for module in order})
    mounts = {
        f"{entry}: {name}": name
        for entry in entries
        for name in order[entry][1]
        if name.startswith("mount")
    }
    _reject_duplicates(mounts)
    parts = [code for code, _ in order.values()]
    named = [f"{name}: {_name(where.split(': ')[0])}.{name}" for where, name in mounts.items()]
    parts.append(f"window.mars = {{ ...window.mars, {', '.join(named)} }};")
    return "(() => {\n" + "\n".join(parts) + "\n})();"


def styles() -> str:
    """Return all style sheets of the page as one text."""
    return "\n".join((WEB / name).read_text("utf-8") for name in STYLES)


def _add(name: str, order: dict[str, tuple[str, list[str]]], above: tuple[str, ...] = ()) -> None:
    """Add a module to ``order`` after the modules that it imports.

    above: the chain of modules that led to this one by imports, to detect cycles.
    """
    if name in order:
        return
    if name in above:
        raise BundleError(f"{name} imports itself through {above[-1]}.")
    try:
        source = (WEB / name).read_text("utf-8")
    except OSError as error:
        raise BundleError(
            f"{name} is missing, but {above[-1] if above else 'the page'} imports it."
        ) from error
    if "</script" in source:
        raise BundleError(f"{name} must not contain </script.")
    for names, path in IMPORT.findall(source):
        target = _resolved(name, path)
        _add(target, order, (*above, name))
        missing = {name.strip() for name in names.split(",") if name.strip()} - {*order[target][1]}
        if missing:
            raise BundleError(f"{name}: {target} does not export {', '.join(sorted(missing))}.")
    exports = EXPORT.findall(source)
    body = IMPORT.sub(lambda match: _constants(name, match), EXPORT.sub("", source))
    if match := OTHER.search(body):
        raise BundleError(f"{name}: {match.group()!r} cannot be bundled.")
    code = f"const {_name(name)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();"
    order[name] = (code, exports)


def _constants(name: str, match: re.Match[str]) -> str:
    return f"const {{{match.group(1)}}} = {_name(_resolved(name, match.group(2)))};"


def _resolved(name: str, path: str) -> str:
    target = (WEB / name).parent.joinpath(path).resolve()
    if not (path.startswith(".") and target.is_relative_to(WEB.resolve())):
        raise BundleError(f"{name}: {path!r} is not a path inside assets/web.")
    return target.relative_to(WEB.resolve()).as_posix()


def _reject_duplicates(names: Mapping[str, str]) -> None:
    """Raise BundleError if two values of ``names`` (owner -> name) are equal."""
    owners: dict[str, str] = {}
    for owner, name in names.items():
        if name in owners:
            raise BundleError(f"{owners[name]} and {owner} would both be called {name}.")
        owners[name] = owner


def _name(module: str) -> str:
    return "$" + re.sub(r"\W", "_", module.removesuffix(".js"))


def template(page: str, **addresses: str) -> str:
    """Return a template of ``assets/web/`` with each ``@name`` replaced by ``addresses[name]``.

    Addresses are escaped for HTML.
    """
    text = (WEB / page).read_text("utf-8")
    for name, address in addresses.items():
        text = text.replace(f"@{name}", html.escape(address))
    return text


def script_data(data: Mapping[str, Any]) -> str:
    """Return ``data`` as JSON that is safe inside a script element: each < is escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def plotly_file() -> Path | None:
    """Return the path of plotly.js in the installed plotly package; None if it is missing."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    return path.resolve() if path.is_file() else None
