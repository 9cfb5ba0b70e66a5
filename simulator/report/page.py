"""The page: everything in one file, nothing from anywhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from plotly.offline import get_plotlyjs

from simulator.report.panel import FigureTable, Panel

_NOTHING_FROM_OUTSIDE = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)
"""A content security policy: the browser itself refuses to fetch or send anything."""


def page(title: str, head: str, panels: Sequence[Panel]) -> str:
    """The whole document. `head` is HTML, all else is text."""
    drawn = {panel.name: [picture.as_json() for picture in panel.pictures] for panel in panels if panel.pictures}
    # Inside a script element only this can end it.
    data = json.dumps(drawn, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    links = "".join(f'<a href="#{panel.name}">{escape(panel.title)}</a>' for panel in panels)
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_NOTHING_FROM_OUTSIDE}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>{_asset('report.css')}</style>",
            "</head>",
            "<body>",
            f'<header class="bar"><strong>Topmast</strong><nav>{links}</nav>',
            '<button id="theme" type="button" aria-label="Switch between light and dark">◐</button></header>',
            "<main>",
            f"<h1>{escape(title)}</h1>",
            head,
            '<div class="panels">',
            *(_section(panel) for panel in panels),
            "</div>",
            "</main>",
            f'<script type="application/json" id="pictures">{data}</script>',
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{_asset('report.js')}</script>",
            "</body>",
            "</html>",
            "",
        )
    )


def table_html(table: FigureTable) -> str:
    """A table that scrolls by itself when it is wide."""
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>' + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in table.rows
    )
    return f'<div class="scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _section(panel: Panel) -> str:
    tables = "".join(table_html(table) for table in panel.tables)
    if panel.pictures and tables:
        tables = f"<details><summary>Table</summary>{tables}</details>"
    labels = [picture.label for picture in panel.pictures]
    options = "".join(f'<option value="{at}">{escape(label)}</option>' for at, label in enumerate(labels))
    choice = (
        f'<select aria-label="What to show of: {escape(panel.title)}">{options}</select>' if len(labels) > 1 else ""
    )
    figure = f'<div class="figure" data-panel="{panel.name}"></div>' if panel.pictures else ""
    return (
        f'<section id="{panel.name}"{" class=wide" if panel.wide else ""}>'
        f"<div class=title><h2>{escape(panel.title)}</h2>{choice}</div>"
        f"<p>{escape(panel.explanation)}</p>{figure}{tables}</section>"
    )


def _asset(name: str) -> str:
    return (files("simulator.report") / "assets" / name).read_text(encoding="utf-8")
