"""The reproduction of the paper: all chapters, two at a time, and one page of what came out (``make paper``).

    python -m benchmarks.paper.reproduce [--quick] [--only NAME ...] [--page]

No data sets are needed. Results are out/paper/NAME.json, the page is out/paper/index.html; with --quick they are in
out/paper/quick. A chapter that fails does not stop the others. The exit status says whether all chapters ran, not
whether their claims held.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from benchmarks.paper.chapters import Chapter, Result, commit, folder_of, run_chapter
from benchmarks.paper.page import Shown, counted, page_of, verdicts_of
from benchmarks.smoke import parser_of, sized

MINUTES = {
    "rates": 14, "lemma": 1, "tradeoff": 7, "sgd_2021": 6, "complexity": 7, "streams": 3, "space": 1,
    "exact_by_name": 20,
}  # fmt: skip
"""The modules of the chapters, in the order of the page, and about how long each takes; the slowest begin."""
AT_ONCE = 2
SHARE = "share done: "


def chapter_of(name: str) -> Chapter:
    """Import a chapter."""
    found = importlib.import_module(f"benchmarks.paper.{name}").CHAPTER
    assert isinstance(found, Chapter)
    return found


def run_here(name: str, quick: bool) -> None:
    """Run a chapter in this process, and print how far it is."""
    run_chapter(chapter_of(name), quick, lambda share: print(f"{SHARE}{share:.4f}", flush=True))


def run_apart(name: str, quick: bool, watch: Callable[[float], None]) -> str:
    """Run a chapter in a process of its own; return why it failed, or nothing."""
    file = folder_of(quick) / f"{name}.json"
    file.unlink(missing_ok=True)  # what is there when it has failed is not of an earlier run
    command = [
        sys.executable,
        "-m",
        "benchmarks.paper.reproduce",
        "--here",
        name,
        *["--quick"] * quick,
        *sized([], ["--smoke"]),
    ]
    with tempfile.TemporaryFile("w+") as errors, _started(command, errors) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(SHARE):
                watch(float(line.removeprefix(SHARE)))
        if process.wait() == 0:
            return ""
        errors.seek(0)
        why = "\n".join(errors.read().strip().splitlines()[-12:]) or f"exit status {process.returncode}"
    file.write_text(json.dumps({"quick": quick, "commit": commit(), "failed": why}))
    return why


def _started(command: list[str], errors: IO[str]) -> subprocess.Popen[str]:
    """Start a process that computes with one thread, and can import this package."""
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)


def run_all(names: list[str], quick: bool, console: Console) -> dict[str, str]:
    """Run chapters, two at a time, and return why some failed."""
    folder_of(quick).mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description:12}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    failures: dict[str, str] = {}
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(AT_ONCE) as pool:

        def run(name: str) -> None:
            bar = progress.add_task(name, total=1.0)
            why = run_apart(name, quick, lambda share: progress.update(bar, completed=share))
            if why:
                failures[name] = why
                progress.update(bar, description=f"[red]{name}[/red]")
                progress.stop_task(bar)
            else:
                progress.update(bar, completed=1.0)

        list(pool.map(run, sorted(names, key=lambda name: -MINUTES[name])))
    return failures


def shown_of(name: str, quick: bool) -> Shown:
    """Return a chapter and what its JSON holds."""
    file = folder_of(quick) / f"{name}.json"
    result: Result | None = json.loads(file.read_text()) if file.exists() else None
    return chapter_of(name), result


def write_page(quick: bool) -> tuple[Path, list[Shown]]:
    """Write the page from the JSON files."""
    shown = [shown_of(name, quick) for name in MINUTES]
    file = folder_of(quick) / "index.html"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page_of(shown), encoding="utf-8")
    return file, shown


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs; less can be decided")
    parser.add_argument(
        "--only", nargs="+", choices=list(MINUTES), default=sized(list(MINUTES), ["space"]), help="run these"
    )
    parser.add_argument("--page", action="store_true", help="run nothing; write the page anew from the JSON files")
    parser.add_argument("--here", choices=list(MINUTES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    quick = sized(given.quick, True)
    if given.here:
        run_here(given.here, quick)
        return 0
    console = Console()
    failures = {} if given.page else run_all(given.only, quick, console)
    file, shown = write_page(quick)
    for one in shown:
        state = "not run" if one[1] is None else "FAILED" if "failed" in one[1] else counted(verdicts_of(one))
        console.print(f"{one[0].name:12} {state}", highlight=False)
    for name, why in failures.items():
        console.print(f"\n{name} failed:\n{why}", markup=False, highlight=False)
    everything = [verdict for one in shown for verdict in verdicts_of(one)]
    console.print(f"\n{counted(everything)}. {file}", highlight=False, soft_wrap=True)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
