"""The theme of the page, and the head of its document.

``theme.json`` contains values for Gradio's theme variables, which match
``assets/web/core/tokens.css``. Only system fonts are used, so that the page loads nothing from
other servers.
"""

from __future__ import annotations

import json
from pathlib import Path

import gradio as gr

from mars_runtime.display import web


def theme() -> gr.themes.Base:
    theme = json.loads(Path(__file__).with_name("theme.json").read_text(encoding="utf-8"))
    base = gr.themes.Base(
        neutral_hue="slate",
        spacing_size="sm",
        radius_size="sm",
        text_size="md",
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
    )
    dark = {f"{name}_dark": value for name, value in theme["dark"].items()}
    return base.set(**theme["light"], **dark, **theme["flat"])


def head() -> str:
    """Return the styles and the start script, for the head of the document. Gradio's parameter
    ``css=`` is not used, because it loses some selectors inside media queries.
    """
    css = (web.WEB / "views" / "page" / "page.css").read_text("utf-8")
    start = "<script>window.mars.mountPage();</script>"
    return f"<style>{web.styles()}{css}</style>\n{start}"
