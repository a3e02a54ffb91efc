"""Pieces of a page: escaped text, tables, and the one style sheet. No scripts, and nothing from elsewhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

LONGEST = 120
"""How many letters of a name of the user's are shown."""

CSS = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1c2733; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; }
header p { color: #48525c; margin: 0.2rem 0; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 0.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.6rem; border-bottom: 1px solid #c9d2dc; padding-bottom: 0.2rem; }
h3 { font-size: 1rem; margin: 0 0 0.4rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
ul { max-width: 46rem; margin: 0.4rem 0; padding-left: 1.3rem; }
li { margin: 0.3rem 0; }
code, .mono { font-family: ui-monospace, "Cascadia Mono", Menlo, Consolas, monospace; font-size: 0.86em; }
pre { background: #f3f5f8; padding: 0.7rem 0.9rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.5rem 0; }
.verdict { margin: 1.2rem 0 0; padding: 0.9rem 1.1rem; border-left: 0.5rem solid; font-size: 1.12rem; max-width: none; }
.verdict strong { display: block; font-size: 1.3rem; }
.passed { background: #e7f4ec; color: #12502c; border-color: #1a7a43; }
.attention { background: #fff3d6; color: #654000; border-color: #b87700; }
.problem { background: #fde9e7; color: #841a12; border-color: #b3261e; }
.not-checked, .measured { background: #eef1f4; color: #3c4650; border-color: #7b8794; }
.badge { display: inline-block; padding: 0.05rem 0.5rem; border-radius: 0.25rem; font-weight: 600; font-size: 0.85rem;
  white-space: nowrap; border: 1px solid; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(11rem, 1fr)); gap: 0.5rem 1rem;
  margin: 1.2rem 0 0; }
.facts div { border-top: 2px solid #c9d2dc; padding-top: 0.25rem; }
.facts dt { color: #48525c; font-size: 0.82rem; }
.facts dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
caption { text-align: left; color: #48525c; font-size: 0.85rem; padding-bottom: 0.3rem; }
th, td { text-align: left; vertical-align: top; padding: 0.45rem 0.6rem; border-bottom: 1px solid #dbe2e9; }
thead th { border-bottom: 2px solid #7b8794; color: #3c4650; font-size: 0.82rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.checks th[scope=row] { width: 16%; }
.checks td:nth-child(2) { width: 7.6rem; }
.checks td:nth-child(3) { width: 25%; }
.checks td:nth-child(4) { width: 26%; }
.why { color: #48525c; font-size: 0.84rem; }
ul.wrong { margin: 0.35rem 0 0; font-size: 0.85rem; color: #841a12; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1.2rem; }
figure { margin: 0; border: 1px solid #dbe2e9; border-radius: 0.3rem; padding: 0.8rem; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; max-width: 34rem; }
figcaption { font-size: 0.85rem; color: #3c4650; margin-top: 0.4rem; }
.confusion { width: auto; }
.confusion td { text-align: right; font-variant-numeric: tabular-nums; border: 1px solid #fff; }
.confusion th { overflow-wrap: anywhere; max-width: 12rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 0 2rem; }
footer { margin-top: 2.5rem; color: #48525c; font-size: 0.85rem; border-top: 1px solid #c9d2dc; padding-top: 0.6rem; }
@media screen and (max-width: 46rem) {
  main { padding: 1rem 0.75rem 2rem; }
  figure { padding: 0.5rem; }
  .stacked thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stacked caption { display: block; }
  .stacked, .stacked tbody, .stacked tr, .stacked th, .stacked td { display: block; width: auto !important; }
  .stacked tr { border: 1px solid #c9d2dc; border-radius: 0.3rem; padding: 0.5rem 0.7rem; margin: 0 0 0.7rem; }
  .stacked th, .stacked td { border: 0; padding: 0.15rem 0; text-align: left !important; }
  .stacked td[data-label]::before { content: attr(data-label); display: block; font-size: 0.75rem; color: #5b6470;
    font-weight: 600; }
  .stacked.brief td[data-label] { display: flex; justify-content: space-between; gap: 1rem;
    text-align: right !important; }
  .stacked.brief td[data-label]::before { flex: none; }
  .stacked.terse tr { border-width: 0 0 1px; border-radius: 0; padding: 0.35rem 0; margin: 0; }
  .stacked.terse th, .stacked.terse td:nth-child(2) { display: inline; padding-right: 0.5rem; }
  .stacked.terse td[data-label]::before { content: none; }
}
@page { size: A4; margin: 16mm 14mm; }
@media print {
  body { font-size: 10pt; }
  table { font-size: 8.5pt; }
  th, td { padding: 0.3rem 0.4rem; }
  .why, ul.wrong, figcaption { font-size: 8pt; }
  .badge { font-size: 8pt; padding: 0 0.3rem; }
  .checks td:nth-child(2) { width: 5.6rem; }
  main { max-width: none; padding: 0; }
  h2 { break-after: avoid; }
  tr, li, .verdict { break-inside: avoid; }
  thead { display: table-header-group; }
  .figures { grid-template-columns: 1fr 1fr; }
  .wide { overflow: visible; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def shown(text: object, most: int = LONGEST) -> str:
    """Return text for a page: escaped, without letters that cannot be seen or turn others round, and not too long.

    >>> shown("<b>&\\u202e\\x00")
    '&lt;b&gt;&amp;��'
    """
    letters = [letter if unicodedata.category(letter)[0] != "C" else "\ufffd" for letter in str(text)]
    if len(letters) > most:
        letters[most - 1 :] = ["…"]
    return escape("".join(letters), quote=True)


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str = "",
    kind: str = "stacked",
    numbers: Sequence[int] = (),
) -> str:
    """Return a table of cells that are HTML already, the first of each row its head; ``numbers`` are set right."""

    def cell(position: int, content: str) -> str:
        right = ' class="number"' if position in numbers else ""
        if position == 0:
            return f'<th scope="row"{right}>{content}</th>'
        return f'<td data-label="{shown(heads[position])}"{right}>{content}</td>'

    top = "".join(
        f'<th scope="col"{" class=number" if position in numbers else ""}>{shown(head)}</th>'
        for position, head in enumerate(heads)
    )
    body = "\n".join("<tr>" + "".join(cell(*each) for each in enumerate(row)) + "</tr>" for row in rows)
    title = f"<caption>{caption}</caption>" if caption else ""
    return f'<table class="{kind}">{title}<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'


def drawn(title: str, svg: str, caption: str) -> str:
    """Return a figure with its title and what it shows."""
    return f"<figure><h3>{title}</h3>{svg}<figcaption>{caption}</figcaption></figure>"


def listed(lines: Iterable[str], kind: str = "") -> str:
    """Return a list of lines that are HTML already."""
    inner = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ul class="{kind}">{inner}</ul>' if kind else f"<ul>{inner}</ul>"
