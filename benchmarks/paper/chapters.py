"""What the chapters of the reproduction have in common: each measures, writes JSON, and draws from that JSON alone.

A chapter is a module with a `Chapter` called CHAPTER. ``python benchmarks/paper/NAME.py [--quick]`` runs one,
`benchmarks/paper/reproduce.py` all of them (``make paper``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.smoke import OUT as RESULTS

OUT = RESULTS / "paper"
Result = dict[str, Any]
"""What was measured: numbers, texts, lists and dictionaries of them."""


@dataclass(frozen=True)
class Table:
    """A table of the page: a head, and rows of the same width."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Verdict:
    """One claim, whether it came out, and in what numbers."""

    claim: str
    held: bool | None
    """None: not decided with so few runs."""
    found: str

    @property
    def word(self) -> str:
        """Say it in a word or two."""
        return {True: "held", False: "MISSED", None: "not decided"}[self.held]


@dataclass(frozen=True)
class Chapter:
    """One part of the reproduction."""

    name: str
    title: str
    claims: str
    """What the paper says, and what is measured here, in a few sentences."""
    measure: Callable[[bool, Callable[[float], None]], Result]
    """Measure: called with whether to be quick, and with what to call with the share done so far."""
    draw: Callable[[Result], Any]
    """Return a figure of Matplotlib, from what was measured."""
    judge: Callable[[Result], list[Verdict]]
    """Say of every claim whether it came out."""
    tables: Callable[[Result], list[Table]] = field(default=lambda result: [])
    """Return what to print below the picture."""


def folder_of(quick: bool) -> Path:
    """Return where results go: those of a quick run beside those of a full one, not in their place."""
    return OUT / "quick" if quick else OUT


def commit() -> str:
    """Return the commit that is measured, with a mark if files were changed since."""
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _processor_seconds() -> float:
    """Return what this process and those it waited for have computed: more telling where others compute, too."""
    return sum(os.times()[:4])


def run_chapter(chapter: Chapter, quick: bool, watch: Callable[[float], None]) -> Result:
    """Measure, and write what was measured and its picture."""
    folder = folder_of(quick)
    folder.mkdir(parents=True, exist_ok=True)
    began, computed, at = time.perf_counter(), _processor_seconds(), commit()
    measured = chapter.measure(quick, watch)
    took = {"seconds": time.perf_counter() - began, "processor_seconds": _processor_seconds() - computed}
    result = {"quick": quick, "commit": at, **{name: round(value, 1) for name, value in took.items()}, **measured}
    (folder / f"{chapter.name}.json").write_text(json.dumps(result, indent=1))
    picture(chapter, quick)
    return result


def picture(chapter: Chapter, quick: bool) -> Result:
    """Draw a chapter from its JSON, and return what that holds."""
    folder = folder_of(quick)
    result: Result = json.loads((folder / f"{chapter.name}.json").read_text())
    chapter.draw(result).savefig(folder / f"{chapter.name}.png", dpi=110)
    return result


def main(chapter: Chapter) -> int:
    """Run one chapter from the prompt; exit with 1 if a claim was missed."""
    from rich.progress import Progress

    parser = argparse.ArgumentParser(description=chapter.claims)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs; writes to out/paper/quick")
    parser.add_argument("--draw", action="store_true", help="only draw anew, from the JSON of an earlier run")
    given = parser.parse_args()
    if given.draw:
        result = picture(chapter, given.quick)
    else:
        with Progress() as progress:
            bar = progress.add_task(chapter.name, total=1.0)
            result = run_chapter(chapter, given.quick, lambda share: progress.update(bar, completed=share))
    verdicts = chapter.judge(result)
    for verdict in verdicts:
        print(f"{verdict.word:11}  {verdict.claim}: {verdict.found}")
    return 1 if any(verdict.held is False for verdict in verdicts) else 0
