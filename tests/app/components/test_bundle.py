"""Many modules bundled as one script: each in its own scope, in order, or an error message."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.ui import assets
from app.ui.views import RaceView, ThroughputView, View
from mars_runtime.show import web


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the place of ``assets/web/``."""
    monkeypatch.setattr(web, "WEB", tmp_path)
    web.bundle.cache_clear()
    yield tmp_path
    web.bundle.cache_clear()


def test_every_module_occurs_once_and_nothing_is_left_to_fetch() -> None:
    made = web.bundle(assets.ENTRIES)
    assert not re.search(r"^(?:import|export)\b", made, flags=re.MULTILINE)
    assert made.count("const $core_bytes = ") == 1
    assert made.index("const $core_bytes = ") < made.index("const $views_race_view = ")
    for mount in (
        "mountRaceView: $views_race_view.",
        "mountThroughputView: $views_throughput_view.",
    ):
        assert mount in made


def test_imports_come_first_and_names_keep_to_their_module(modules: Path) -> None:
    (modules / "in").mkdir()
    (modules / "in" / "a.js").write_text("const b = 1;\nexport const a = b + 1;\n")
    (modules / "b.js").write_text(
        'import { a } from "./in/a.js";\nexport function mountB() { return a; }\n'
    )
    made = web.bundle(("b.js",))
    assert made.index("$in_a = ") < made.index("$b = ")
    assert "const { a } = $in_a;" in made
    assert "window.mars = { ...window.mars, mountB: $b.mountB };" in made


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('import { nothing } from "./a.js";\n', "a.js does not export nothing"),
        ("export default 1;\n", "cannot be bundled"),
        ('export const load = () => import("./a.js");\n', "cannot be bundled"),
        ('export * from "./a.js";\n', "cannot be bundled"),
        ('import { b } from "./b.js";\n', "imports itself"),
        ('import { a } from "./missing.js";\n', "missing.js is missing, but b.js imports it"),
        ('import { a } from "../a.js";\n', "is not a path inside assets/web"),
        ('const x = "</script>";\n', "must not contain </script"),
    ],
)
def test_other_forms_are_refused(modules: Path, source: str, said: str) -> None:
    (modules / "a.js").write_text("export const a = 1;\n")
    (modules / "b.js").write_text(source)
    with pytest.raises(web.BundleError, match=said):
        web.bundle(("b.js",))


def test_the_second_name_of_one_declaration_is_not_exported(modules: Path) -> None:
    (modules / "a.js").write_text("export const a = 1, c = 2;\n")
    (modules / "b.js").write_text('import { c } from "./a.js";\n')
    with pytest.raises(web.BundleError, match=r"a\.js does not export c"):
        web.bundle(("b.js",))


def test_modules_whose_names_would_be_the_same_are_refused(modules: Path) -> None:
    (modules / "in").mkdir()
    (modules / "in" / "a.js").write_text("export const a = 1;\n")
    (modules / "in_a.js").write_text('import { a } from "./in/a.js";\nexport const b = a;\n')
    with pytest.raises(web.BundleError, match="would both be called"):
        web.bundle(("in_a.js",))


@pytest.mark.parametrize("view", [ThroughputView, RaceView])
def test_a_template_holds_nothing_that_gradio_would_fill_in(view: type[View]) -> None:
    page = view.template('/x"y')
    assert "{{" not in page
    assert "${" not in page
