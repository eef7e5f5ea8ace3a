"""What a notebook shows of an object: a small table, and pictures in it."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping
from pathlib import Path


def card(title: str, facts: Mapping[str, object], pictures: Iterable[Path] = ()) -> str:
    """HTML of a title, a table of facts, and those PNG files that exist; it needs no other file."""
    rows = "".join(
        f"<tr><th style='text-align: left'>{html.escape(name)}</th>"
        f"<td style='text-align: left'>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    shown = "".join(_picture(file) for file in pictures if file.is_file())
    return f"<div><b>{html.escape(title)}</b><table>{rows}</table>{shown}</div>"


def _picture(file: Path) -> str:
    data = base64.b64encode(file.read_bytes()).decode("ascii")
    return (
        f"<img alt='{html.escape(file.stem, quote=True)}' style='max-width: 100%; display: block'"
        f" src='data:image/png;base64,{data}'>"
    )
