"""/docs: every route, its arguments and how to call it, as one plain page made from the OpenAPI."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    ":root{color-scheme:light dark}pre{overflow-x:auto;padding:.5rem;border:1px solid #8888}"
    "td,th{text-align:left;overflow-wrap:anywhere;vertical-align:top;padding:.1rem .8rem .1rem 0}"
)
_EXAMPLES: dict[str, dict[str, Any]] = {
    "plan": {"ud": "250M", "flops": "5e18"},
    "compare": {"ud": "500M", "flops": "1e19", "weight_decay": 0.1},
    "frontier": {"ud": "250M", "flops": [1e18, 1e19, 1e20]},
    "crossover": {"ud": "250M"},
    "predict": {"params": "500M", "ud": "250M", "epochs": 8, "weight_decay": 0.1},
}


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    return HTMLResponse("".join(_page(request.app.openapi(), str(request.base_url).rstrip("/"))))


def _page(described: dict[str, Any], address: str) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><title>databound: the service</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style><h1>The service</h1><p>{_words(described['info']['description'])} "
    yield 'Bad input is answered with status 422 and {"detail": a sentence, "field": the argument at fault}. '
    yield 'Machines read <a href="openapi.json">openapi.json</a>.</p>'
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            yield f"<h2>{method.upper()} {escape(path)}</h2><p>{_words(route.get('description', ''))}</p>"
            yield _example(method, path, address)
            yield from _arguments(route, described["components"]["schemas"])


def _example(method: str, path: str, address: str) -> str:
    name = path.rpartition("/")[2]
    call = f"curl {address}{path}"
    if name in _EXAMPLES and method == "post":
        call += f" -H 'Content-Type: application/json' -d '{json.dumps(_EXAMPLES[name])}'"
    elif method == "post":
        call += f" --data-binary @{'my.json' if name == 'calibrations' else 'runs.csv'}"
    return f"<pre>{escape(call)}</pre>"


def _arguments(route: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    """Fields of a JSON body, or of the query."""
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = schemas.get(content.get("schema", {}).get("$ref", "").rpartition("/")[2], {})
    needed = schema.get("required", ())
    rows = [(name, name in needed, field) for name, field in schema.get("properties", {}).items()]
    rows += [(one["name"], one.get("required"), one["schema"]) for one in route.get("parameters", ())]
    if rows:
        yield "<table>"
        for name, is_needed, field in rows:
            said = _words(field.get("description", ""))
            yield f"<tr><th>{escape(name)}<td>{'needed' if is_needed else ''}<td>{said}"
        yield "</table>"


def _words(text: str) -> str:
    """A text whose names stand in backticks."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))
