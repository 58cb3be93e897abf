"""``/docs``: the OpenAPI document as plain HTML, which loads no other resources."""

from __future__ import annotations

import json
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse }
td, th { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #ddd }
"""
SHOWN_ELSEWHERE = ("title", "description", "default")


def page(document: dict[str, Any]) -> str:
    routes = "".join(
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(route['description'])}"
        for path, methods in document["paths"].items()
        for method, route in methods.items()
    )
    schemas = "".join(
        f"<h2>{name}</h2><p>{escape(schema.get('description', ''))}</p>"
        f"<table><tr><th>Field<th>Values<th>Default<th>Description{_rows(schema)}</table>"
        for name, schema in document["components"]["schemas"].items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>MARS: API</title>'
        f"<style>{STYLE}</style><h1>MARS: API</h1>"
        f'<p>For programs: <a href="openapi.json">openapi.json</a>.</p>{routes}{schemas}</html>'
    )


def _rows(schema: dict[str, Any]) -> str:
    rows = ""
    for name, field in schema.get("properties", {}).items():
        values = {key: value for key, value in field.items() if key not in SHOWN_ELSEWHERE}
        cells = (json.dumps(values), json.dumps(field.get("default")), field.get("description", ""))
        rows += f"<tr><td><code>{name}</code>{''.join(f'<td>{escape(cell)}' for cell in cells)}"
    return rows
