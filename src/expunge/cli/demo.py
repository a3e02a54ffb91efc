"""`expunge demo`: all of it, on a real table that ships with scikit-learn and on 500,000 made-up people."""

from __future__ import annotations

import csv
import io
import time
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from expunge.base.errors import BadPlan
from expunge.base.wording import duration
from expunge.cli.crowd import erase_people
from expunge.cli.options import Json, whole
from expunge.cli.output import Report, reporting

FEWEST = 1_000
FILES = (
    "patients.csv", "others.csv", "schema.toml", "patients.expunge", "people.parquet", "more-people.parquet",
    "people.toml", "people.expunge", "erased.txt", "operator.pem", "operator.pem.pub", "report.html", "demo.png",
)  # fmt: skip


def demo(
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put its files.")] = Path("out/demo"),
    people: Annotated[
        Any, typer.Option(parser=whole, metavar="N", help="How many synthetic people; at least 1,000.")
    ] = 500_000,
    json: Json = False,
) -> None:
    """Show everything, from a table to a report, in under two minutes.

    First the commands, one by one, on a real table of 569 patients (Wisconsin
    breast cancer, from scikit-learn). Then 500,000 synthetic people, compared
    with retraining. Then the report that `expunge audit` writes. It works
    offline.
    """
    with reporting(json) as report:
        if people < FEWEST:
            raise BadPlan(f"--people: {people:,} are too few to show anything; give at least {FEWEST:,}.")
        began = time.perf_counter()
        _make_room(folder)
        _patients(report, folder)
        _title(report, f"2. {people:,} synthetic people, in Python")
        noted = erase_people(report, folder, people)
        _title(report, "3. The report")
        _prompt(report, [
            "audit", f"{folder}/people.expunge", "--ids-file", f"{folder}/erased.txt",
            "--test", f"{folder}/more-people.parquet", "--public-key", f"{folder}/operator.pem.pub", "--noted", noted,
            "--runs", "1000", "-o", f"{folder}/report.html",
        ])  # fmt: skip
        report.data |= {"seconds": time.perf_counter() - began, "folder": str(folder)}
        report.say("")
        report.say(f"Open {folder / 'report.html'} in a browser, and look at {folder / 'demo.png'}.", "bold")
        report.say(f"This took {duration(report.data['seconds'])}. Now try your own table: expunge schema data.csv")


def _make_room(folder: Path) -> None:
    """Make a folder of the demo's own, and remove what an earlier demo has left there."""
    from expunge.store.surroundings import ENDINGS, beside

    mark = folder / ".expunge-demo"
    if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
        raise BadPlan(f"--folder: {folder} has files that are not the demo's; give an empty or a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
    for name in FILES:
        for ending in ("", "-key", *ENDINGS):
            beside(folder / name, ending).unlink(missing_ok=True)


def _title(report: Report, text: str) -> None:
    if not report.as_json:
        report.console.rule(f" {text} ", align="left", characters="─")


def _prompt(report: Report, arguments: list[str]) -> None:
    """Print a command, and run it."""
    from expunge.cli.app import app

    report.say("$ expunge " + " ".join(f'"{one}"' if " " in one else one for one in arguments), "bold cyan")
    aside = io.StringIO()
    with ExitStack() as hidden:
        if report.as_json:
            hidden.enter_context(redirect_stdout(aside))
            hidden.enter_context(redirect_stderr(aside))
        code = app(arguments, prog_name="expunge", standalone_mode=False)
    if code:
        raise typer.Exit(code)


def _patients(report: Report, folder: Path) -> None:
    """Run the commands on a real table."""
    _title(report, "1. A real table, at the command line")
    write_patients(folder)
    table, others, model = (f"{folder}/{name}" for name in ("patients.csv", "others.csv", "patients.expunge"))
    schema = f"{folder}/schema.toml"
    report.say("A schema says what each column is. The command drafts it; you confirm it.")
    _prompt(report, ["schema", table, "--id", "patient", "--target", "diagnosis", "-o", schema])
    _prompt(report, ["fit", table, "--schema", schema, "--test", others, "-o", model])
    report.say(
        "Two patients ask for deletion. (So few records need no noise: every deletion replays, in milliseconds.)"
    )
    _prompt(report, ["unlearn", model, "--id", "patient-0017", "--id", "patient-0042", "--outcome"])
    report.say("No byte of them is left:")
    _prompt(report, ["scan", model, "--id", "patient-0017"])
    _prompt(report, ["verify", model])
    _prompt(report, ["evaluate", model, others])


def write_patients(folder: Path) -> None:
    """Write two tables of patients, one to learn from and one of others."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    rows = [
        [f"patient-{number:04d}", *values, found.target_names[target]]
        for number, (values, target) in enumerate(zip(found.data.tolist(), found.target.tolist(), strict=True))
    ]
    for name, part in (("patients.csv", rows[:455]), ("others.csv", rows[455:])):
        with open(folder / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", *found.feature_names, "diagnosis"])
            writer.writerows(part)
