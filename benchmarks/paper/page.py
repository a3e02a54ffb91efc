"""The page of the reproduction: one HTML file with everything in it, made from the chapters' JSON alone."""

from __future__ import annotations

import base64
import html
import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from benchmarks.paper.chapters import Chapter, Result, Table, Verdict

Shown = tuple[Chapter, Result | None]
"""A chapter, and what its JSON holds: nothing if it was not run, {"failed": why} if it broke off."""

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 70rem; margin: 2rem auto;
       padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #d0d7de; padding-top: 1.5rem; }
img { max-width: 100%; height: auto; } .small { color: #57606a; font-size: .9rem; }
table { border-collapse: collapse; font-size: .9rem; } th, td { border-bottom: 1px solid #d0d7de; padding: .25rem .6rem;
       text-align: left; vertical-align: top; } .wide { overflow-x: auto; }
.held, .missed, .undecided { white-space: nowrap; }
.held { color: #116329; } .missed { color: #a40e26; font-weight: 700; } .undecided { color: #7a4d00; }
code { background: #f0f2f4; padding: 0 .2em; } summary { cursor: pointer; margin: .6rem 0; }
"""
WORDS = {True: ("held", "✓ held"), False: ("missed", "✗ missed"), None: ("undecided", "? not decided")}


def counted(verdicts: Iterable[Verdict]) -> str:
    """Say how many claims held, were missed, and are not decided."""
    count = Counter(verdict.held for verdict in verdicts)
    parts = [f"{count[True]} of {count.total()} claims held"]
    if count[False]:
        parts.append(f"{count[False]} missed")
    if count[None]:
        parts.append(f"{count[None]} not decided")
    return ", ".join(parts)


def verdicts_of(shown: Shown) -> list[Verdict]:
    """Return the verdicts of a chapter; none if there is nothing to judge."""
    chapter, result = shown
    return [] if result is None or "failed" in result else chapter.judge(result)


def page_of(chapters: list[Shown]) -> str:
    """Return the whole page."""
    everything = [verdict for shown in chapters for verdict in verdicts_of(shown)]
    contents = "".join(f'<li><a href="#{c.name}">{_text(c.title)}</a>: {_standing((c, r))}</li>' for c, r in chapters)
    body = "".join(_chapter(shown) for shown in chapters)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>The paper, measured</title><style>{STYLE}</style></head><body><h1>The paper, measured</h1>"
        "<p>Ullah &amp; Arora, <i>From Adaptive Query Release to Machine Unlearning</i> (ICML 2023), by this library. "
        "Each chapter says what is claimed, whether it came out, and in what numbers. A claim is not decided if the "
        "intervals of so few runs leave it open.</p>"
        f"<p><b>{_text(counted(everything))}.</b></p><ol>{contents}</ol>{body}</body></html>\n"
    )


def _standing(shown: Shown) -> str:
    result = shown[1]
    if result is None:
        return "not run"
    return '<span class="missed">failed</span>' if "failed" in result else _text(counted(verdicts_of(shown)))


def _chapter(shown: Shown) -> str:
    chapter, result = shown
    parts = [f'<h2 id="{chapter.name}">{_text(chapter.title)}</h2><p>{_text(chapter.claims)}</p>']
    if result is None:
        return "".join([*parts, "<p>This chapter was not run.</p>"])
    if "failed" in result:
        why = html.escape(result["failed"])
        return "".join([*parts, f'<p class="missed">This chapter failed.</p><pre class="wide">{why}</pre>'])
    rows = [[WORDS[v.held][1], v.claim, v.found] for v in chapter.judge(result)]
    classes = [WORDS[v.held][0] for v in chapter.judge(result)]
    parts.append(_table(Table(["", "claim", "found"], rows), classes))
    parts.append(f'<p><img alt="{html.escape(chapter.title)}" src="{_picture(chapter.draw(result))}"></p>')
    for number, table in enumerate(chapter.tables(result), 1):
        parts.append(f"<details><summary>Table {number} ({len(table.rows)} rows)</summary>{_table(table)}</details>")
    kind = "quick run (fewer and smaller runs)" if result["quick"] else "full run"
    took = f"{result['seconds']:.0f} seconds"
    if "processor_seconds" in result:
        took += f" ({result['processor_seconds']:.0f} of one core)"
    parts.append(f'<p class="small">{kind}, {took}, commit {_text(result["commit"])}</p>')
    return "".join(parts)


def _table(table: Table, classes: list[str] | None = None) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in table.head)
    rows = []
    for number, row in enumerate(table.rows):
        mark = f' class="{classes[number]}"' if classes else ""
        first, *others = row
        rows.append(
            f"<tr><td{mark}>{_text(first)}</td>" + "".join(f"<td>{_text(cell)}</td>" for cell in others) + "</tr>"
        )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _picture(figure: Any) -> str:
    file = io.BytesIO()
    figure.savefig(file, dpi=110, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _text(words: str) -> str:
    """Escape, and set what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(str(words)))
