"""The scripts of the batch view stand in one scope: no name may be declared twice there."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from app.components import batch_view, race_view


@pytest.mark.parametrize("view", [batch_view, race_view], ids=["batch", "race"])
def test_no_name_is_declared_twice(view) -> None:
    names = re.findall(r"^(?:const|let|class|function) (\w+)", view.script(), re.MULTILINE)
    assert len(names) > 20
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_template_holds_nothing_that_gradio_would_fill_in() -> None:
    page = batch_view.template("/plotly.js")
    assert "{{" not in page
    assert "${" not in page
