"""A report as HTML: sections, tables and pictures on one self-contained page.

The page needs no network: pictures are inline SVG, whose ink and colours follow the reader's light or dark
theme. Every text is escaped.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

import matplotlib
from matplotlib.figure import Figure

from calibration.reports.fit_plots import INK
from planner.show import palette


@dataclass(frozen=True)
class Section:
    """A heading and the HTML below it (use `paragraph`, `table` and `picture`, which escape)."""

    title: str
    body: str


def page(
    title: str, sections: Iterable[Section], opening: Sequence[str] = (), warnings: Sequence[str] = ()
) -> str:
    """Sections as one page: what they come to in a few sentences, what to be careful about, a table of
    contents, and the sections.
    """
    parts = list(sections)
    contents = "".join(f'<li><a href="#s{i}">{escape(part.title)}</a></li>' for i, part in enumerate(parts))
    body = "".join(
        f'<section id="s{i}"><h2>{escape(part.title)}</h2>{part.body}</section>'
        for i, part in enumerate(parts)
    )
    verdict = f'<p class="verdict">{escape(" ".join(opening))}</p>' if opening else ""
    if warnings:
        each = "".join(f"<li>{escape(text[:1].upper() + text[1:])}</li>" for text in warnings)
        verdict += (
            f'<aside class="careful" aria-label="Careful"><strong>Careful</strong><ul>{each}</ul></aside>'
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f"<style>{_CSS}@media (prefers-color-scheme:dark){{{dark_rules('svg')}}}</style></head>"
        f'<body><main><h1>{escape(title)}</h1>{verdict}<nav aria-label="Contents"><ul>{contents}</ul></nav>'
        f"{body}</main></body></html>\n"
    )


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(header: Sequence[str] | None, rows: Iterable[Sequence[str]]) -> str:
    head, kind = "", ' class="plain"'
    if header is not None:
        kind, titles = "", "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
        head = f"<thead><tr>{titles}</tr></thead>"
    body = ""
    for first, *others in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
        body += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'
    return f'<div class="scroll" tabindex="0"><table{kind}>{head}<tbody>{body}</tbody></table></div>'


def picture(figure: Figure, label: str, caption: str) -> str:
    """A figure as inline SVG in the page's own ink."""
    buffer = io.StringIO()
    # A salt of its own keeps the ids of pictures apart, and the page the same every time.
    with matplotlib.rc_context({"svg.hashsalt": label, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"', r"<svg \1\2", svg, count=1)
    box = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    assert box is not None  # matplotlib writes one
    about = f'role="img" aria-label="{escape(label)}" style="max-width:{float(box[1]) * 96 / 72:.0f}px"'
    svg = svg.replace(INK, "currentColor").replace("<svg ", f"<svg {about} ", 1)
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><div class="scroll" tabindex="0">{svg}</div>{below}</figure>'


def dark_rules(scope: str, spelled: Callable[[str], str] = str) -> str:
    """A style sheet that gives what was drawn for light paper its colours on dark.

    `scope` is what holds the SVG, `spelled` how that writes the colour of a line or an area in its styles.
    """
    pairs = dict.fromkeys((look.light, look.dark) for look in palette.styles() if look != palette.INK)
    return "".join(
        f'{scope} [style*="{what}: {spelled(light)}"]{{{what}:{dark}!important}}'
        for light, dark in pairs
        for what in ("fill", "stroke")
    )


_CSS = """
:root{--ink:#1d1f21;--paper:#fff;--soft:#f2f3f5;--line:#d6d9dd;--link:#005a9c}
@media (prefers-color-scheme:dark){
:root{--ink:#e4e6e8;--paper:#16181b;--soft:#212429;--line:#3a3f45;--link:#7cc0ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:68rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{font-size:1rem;margin:1.4rem 0 .4rem}
.verdict{font-size:1.12rem;max-width:46rem;border-left:4px solid var(--link);padding:.1rem 0 .1rem .9rem}
.careful{max-width:46rem;border-left:4px solid #c77700;padding:.1rem 0 .1rem .9rem;margin:1rem 0}
.careful ul{margin:.2rem 0;padding-left:1.2rem}
a{color:var(--link)} nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1rem}
.scroll{overflow-x:auto;margin:.6rem 0} :focus-visible{outline:3px solid var(--link);outline-offset:2px}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .5rem;border-bottom:1px solid var(--line)}
th,td{text-align:right;white-space:nowrap;vertical-align:top}
thead th{background:var(--soft);font-weight:600} tbody th{text-align:left;font-weight:500}
th:first-child{text-align:left}
table.plain td{text-align:left;white-space:normal;overflow-wrap:anywhere}
figure{margin:1rem 0} figure svg{width:100%;min-width:40rem;height:auto;display:block}
figcaption{font-size:.9rem;opacity:.85;max-width:46rem}
svg text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif!important}
@media (max-width:40rem){
th,td{padding:.3rem .35rem} table.plain th{white-space:normal} figure svg{min-width:34rem}}
@media print{nav{display:none} section{break-inside:avoid-page}}
""".strip().replace("\n", "")
