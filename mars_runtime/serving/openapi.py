"""The description of the routes: ``/openapi.json`` for programs and ``/docs`` for people.

FastAPI generates the document from the routes and from the pydantic models of their bodies. The
page shows the document as plain HTML and loads no other resources.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import Route

TITLE, VERSION = "MARS", "1"
SCHEMAS = "#/components/schemas/{model}"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse }
td, th { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #ddd }
"""
Json = dict[str, Any]


def document(routes: Sequence[Route], bodies: Mapping[str, type[BaseModel]]) -> Json:
    """Return the OpenAPI document of the routes.

    bodies: the pydantic model of the request body, by path.
    """
    models = [(model, "validation") for model in bodies.values()]
    _, schemas = models_json_schema(models, ref_template=SCHEMAS)  # type: ignore[arg-type]
    shown = [_shown(route, bodies.get(route.path)) for route in routes]
    openapi = get_openapi(title=TITLE, version=VERSION, routes=shown)
    openapi["components"] = {"schemas": schemas["$defs"]}
    return openapi


def _shown(route: Route, body: type[BaseModel] | None) -> APIRoute:
    endpoint = route.endpoint.func if isinstance(route.endpoint, partial) else route.endpoint
    extra: Json = {
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in route.param_convertors
        ]
    }
    if body is not None:
        schema = {"$ref": SCHEMAS.format(model=body.__name__)}
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return APIRoute(
        route.path,
        lambda: None,
        methods=sorted((route.methods or set()) - {"HEAD"}),
        name=endpoint.__name__,
        description=inspect.getdoc(endpoint),
        openapi_extra=extra,
    )


def page(document: Json) -> str:
    """Return an HTML page that shows an OpenAPI document."""
    parts = [
        _operation(method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    parts += [_schema(name, schema) for name, schema in document["components"]["schemas"].items()]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{TITLE}: API</title>'
        f"<style>{STYLE}</style><h1>{TITLE}: API</h1>"
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>'
        f"{''.join(parts)}</html>"
    )


def _operation(method: str, path: str, operation: Json) -> str:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    body = f"<p>Body: {_kind(content['schema'])}</p>" if content else ""
    words = escape(operation.get("description", "").replace("``", ""))
    return f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{words}</p>{body}"


def _schema(name: str, schema: Json) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code><td>{_kind(field_schema)}<td>{_default(field_schema)}"
        f"<td>{escape(field_schema.get('description', ''))}"
        for field, field_schema in schema.get("properties", {}).items()
    )
    heads = "<tr><th>Field<th>Type<th>Default<th>Description"
    words = escape(schema.get("description", ""))
    return f'<h2 id="{name}">{name}</h2><p>{words}</p><table>{heads}{rows}</table>'


def _default(schema: Json) -> str:
    default = schema.get("default")
    return "" if default is None else f"<code>{escape(repr(default))}</code>"


def _kind(schema: Json) -> str:
    """Describe the values of a field in HTML: a type with its range, or the allowed values."""
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return f'<a href="#{name}">{name}</a>'
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return ", ".join(f"<code>{escape(str(choice))}</code>" for choice in choices)
    if "anyOf" in schema:
        return " or ".join(_kind(alternative) for alternative in schema["anyOf"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(schema['items'])}"
    has_range = "minimum" in schema and "maximum" in schema
    return f"{kind}, {schema['minimum']:g} to {schema['maximum']:g}" if has_range else kind
