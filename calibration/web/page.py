"""The page, which the service sends as static files."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)


@router.get("/")
def home() -> HTMLResponse:
    return HTMLResponse('<!doctype html><title>databound</title><a href="docs">The service</a>')
