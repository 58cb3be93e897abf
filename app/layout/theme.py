"""The look of the controls: the colours and sizes of ``assets/web/core/tokens.css`` as a theme.

System fonts only, so nothing is fetched from elsewhere. Knows no component.
"""

from __future__ import annotations

import gradio as gr

from app.components import assets
from app.recordings import script_element

LIGHT = {
    "body_background_fill": "#ffffff",
    "background_fill_primary": "#ffffff",
    "background_fill_secondary": "#f6f8fa",
    "block_background_fill": "#ffffff",
    "input_background_fill": "#ffffff",
    "border_color_primary": "#dfe5ea",
    "border_color_accent": "#1b7599",
    "input_border_color": "#c6d0d8",
    "input_border_color_focus": "#1b7599",
    "body_text_color": "#16212b",
    "body_text_color_subdued": "#5c6873",
    "block_label_text_color": "#5c6873",
    "block_title_text_color": "#16212b",
    "block_info_text_color": "#5c6873",
    "slider_color": "#1b7599",
    "color_accent": "#1b7599",
    "color_accent_soft": "#dcedf4",
    "checkbox_background_color_selected": "#1b7599",
    "checkbox_border_color_selected": "#1b7599",
    "checkbox_label_background_fill": "#ffffff",
    "checkbox_label_background_fill_hover": "#f6f8fa",
    "checkbox_label_background_fill_selected": "#dcedf4",
    "button_primary_background_fill": "#1b7599",
    "button_primary_background_fill_hover": "#155f7d",
    "button_primary_border_color": "#1b7599",
    "button_primary_border_color_hover": "#155f7d",
    "button_primary_text_color": "#ffffff",
    "button_secondary_background_fill": "#ffffff",
    "button_secondary_background_fill_hover": "#f6f8fa",
    "button_secondary_border_color": "#c6d0d8",
    "button_secondary_text_color": "#16212b",
    "error_border_color": "#b42318",
    "error_text_color": "#b42318",
}
DARK = {
    "body_background_fill": "#101419",
    "background_fill_primary": "#151a20",
    "background_fill_secondary": "#1c232b",
    "block_background_fill": "#101419",
    "input_background_fill": "#151a20",
    "border_color_primary": "#2a323b",
    "border_color_accent": "#62b9da",
    "input_border_color": "#3a4550",
    "input_border_color_focus": "#62b9da",
    "body_text_color": "#e8eef3",
    "body_text_color_subdued": "#97a4b0",
    "block_label_text_color": "#97a4b0",
    "block_title_text_color": "#e8eef3",
    "block_info_text_color": "#97a4b0",
    "slider_color": "#62b9da",
    "color_accent_soft": "#18313c",
    "checkbox_background_color_selected": "#1f7da3",
    "checkbox_border_color_selected": "#62b9da",
    "checkbox_label_background_fill": "#151a20",
    "checkbox_label_background_fill_hover": "#1c232b",
    "checkbox_label_background_fill_selected": "#18313c",
    "button_primary_background_fill": "#1f7da3",
    "button_primary_background_fill_hover": "#176a8b",
    "button_primary_border_color": "#1f7da3",
    "button_primary_border_color_hover": "#176a8b",
    "button_primary_text_color": "#ffffff",
    "button_secondary_background_fill": "#151a20",
    "button_secondary_background_fill_hover": "#1c232b",
    "button_secondary_border_color": "#3a4550",
    "button_secondary_text_color": "#e8eef3",
    "error_border_color": "#ff8f85",
    "error_text_color": "#ff8f85",
}
FLAT = {
    "block_border_width": "0px",
    "button_border_width": "1px",
    "button_border_width_dark": "1px",
    "input_border_width": "1px",
    "input_border_width_dark": "1px",
    "block_padding": "0px",
    "block_shadow": "none",
    "block_label_text_size": "12px",
    "block_title_text_size": "12px",
    "block_title_text_weight": "400",
    "block_info_text_size": "12px",
    "checkbox_label_text_size": "14px",
    "checkbox_label_shadow": "none",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "button_primary_shadow": "none",
    "button_secondary_shadow": "none",
    "section_header_text_size": "12px",
}


def theme() -> gr.themes.Base:
    """The theme for ``launch``; light and dark are both written out, neither derived."""
    base = gr.themes.Base(
        neutral_hue="slate",
        spacing_size="sm",
        radius_size="sm",
        text_size="md",
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace"],
    )
    return base.set(**LIGHT, **{f"{name}_dark": value for name, value in DARK.items()}, **FLAT)


def head() -> str:
    """Styles, scripts and recordings of the components and of the page, for the document's head.

    Not through ``css=``, which rewrites selectors and loses some of them inside media queries.
    """
    css = (assets.WEB / "views" / "page" / "page.css").read_text("utf-8")
    start = "<script>window.mars.mountPage();</script>"
    return f"{script_element()}\n{assets.head()}\n<style>{css}</style>\n{start}"
