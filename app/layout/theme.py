"""The look of the page: its theme, and what stands in the document's head.

``theme.json`` holds the colours and sizes of ``assets/web/core/tokens.css`` in gradio's names.
System fonts only, so nothing is fetched from elsewhere. Knows no component.
"""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr

from app.components import assets


def theme() -> gr.themes.Base:
    """The theme of the page; light and dark are both written out, neither derived."""
    told = json.loads(Path(__file__).with_name("theme.json").read_text(encoding="utf-8"))
    base = gr.themes.Base(
        neutral_hue="slate",
        spacing_size="sm",
        radius_size="sm",
        text_size="md",
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
    )
    dark = {f"{name}_dark": value for name, value in told["dark"].items()}
    return base.set(**told["light"], **dark, **told["flat"])


def head() -> str:
    """The styles of the components and of the page, and the call that starts it, for the document's
    head. The script is already there (``gradio_compat.edit_document``).

    Not through ``css=``, which rewrites selectors and loses some of them inside media queries.
    """
    css = (assets.WEB / "views" / "page" / "page.css").read_text("utf-8")
    start = "<script>window.mars.mountPage();</script>"
    return f"<style>{assets.styles()}{css}</style>\n{start}"
