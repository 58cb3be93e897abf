"""The templates of the views."""

from __future__ import annotations

import pytest

from app.ui.views import RaceView, ThroughputView, View


@pytest.mark.parametrize("view", [ThroughputView, RaceView])
def test_a_template_holds_nothing_that_gradio_would_fill_in(view: type[View]) -> None:
    page = view.template('/x"y')
    assert "{{" not in page
    assert "${" not in page
