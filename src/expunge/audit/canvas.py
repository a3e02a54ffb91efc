"""Figures as SVG for a page: the same bytes for the same figure, no names of people, no links."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from html import escape
from typing import Any

from expunge.base.errors import BadPlan

BLUE, ORANGE, GREY, DARK, PALE = "#1f5a96", "#c2500a", "#5b6470", "#1c2733", "#dfe6ee"
WIDTH = 4.7
"""How wide figures are, in inches: also on a telephone their letters can be read."""

_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "expunge",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": DARK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "text.color": DARK,
    "text.usetex": False,
    "xtick.color": DARK,
    "ytick.color": DARK,
}


def figure(name: str, label: str, height: float, draw: Callable[[Any], None], *, sheet: bool = False) -> str:
    """Return a figure as an SVG element; ``draw`` gets its axes, ``label`` says what it shows to who cannot see it.

    The axes of a ``sheet`` fill it.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadPlan("a report needs matplotlib; install it with pip install 'expunge[plot]'.") from error
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        drawn = Figure(figsize=(WIDTH, height), layout=None if sheet else "constrained")
        draw(drawn.add_axes((0.0, 0.0, 1.0, 1.0)) if sheet else drawn.subplots())
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn.savefig(buffer, format="svg", metadata=nothing)
    return _inline(buffer.getvalue(), name, label)


def _inline(text: str, name: str, label: str) -> str:
    """Return an SVG file as an element of a page, whose ids are its own."""
    body = text[text.index("<svg") :]
    body = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{name}-", body)
    opening = f'<svg role="img" aria-label="{escape(label, quote=True)}"'
    return re.sub(r"^<svg", lambda _: opening, body).strip()


def bare(axes: Any, width: float, height: float) -> None:
    """Make axes a sheet of paper to draw on."""
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_axis_off()
