"""`expunge predict` and `expunge evaluate`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from expunge.cli.models import has_target, opened, schema_of
from expunge.cli.options import Json, OnErrorOption, Store, Tables, check_output, written
from expunge.cli.output import reporting
from expunge.cli.train import report_counts
from expunge.errors import BadPlan


def predict(
    model: Store,
    data: Tables,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A CSV file; by default standard output.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    on_error: OnErrorOption = "stop",
    json: Json = False,
) -> None:
    """Predict for the records of tables.

    Writes CSV with the id (or the line) of each record, the prediction, and
    for logistic regression the probability of each class. Nothing is kept.
    """
    with reporting(json) as report:
        import numpy as np

        from expunge.schema import EncodedTables

        if json and output is None:
            raise BadPlan("--json: predictions and JSON cannot both go to standard output; give -o FILE.")
        if output is not None:
            check_output(output, force)
            if any(one.exists() and output.exists() and one.samefile(output) for one in [model, *data]):
                raise BadPlan(f"{output}: is read from; write to another file.")
        with opened(model, read_only=True) as found, _printed() if output is None else written(output) as file:
            tables = EncodedTables(schema_of(found, model), data, on_error=on_error, target=False, keys=())
            key = tables.schema.id
            named = key is not None and all(key.name in table.names for table in tables.tables)
            if named:
                tables = EncodedTables(tables.schema, data, on_error=on_error, target=False, keys=("id",))
            writer = csv.writer(file, lineterminator="\n")
            chances = hasattr(found, "predict_proba")
            label = "prediction" if has_target(found) else "cluster"
            names = [f"probability of {name}" for name in found.classes_.tolist()] if chances else []
            writer.writerow([key.name if named and key else "line", label, *names])
            for block in tables.blocks():
                X = block.X.astype(np.float64)
                parts: list[Any] = [block.lines if block.ids is None else block.ids, found.predict(X)]
                if chances:
                    parts += list(found.predict_proba(X).T.round(6))
                writer.writerows(zip(*[part.tolist() for part in parts], strict=True))
        report_counts(report, tables)
        report.data |= {"predictions": None if output is None else str(output), "records": tables.counts.rows}
        if output is not None:
            report.say(f"{tables.counts.rows:,} predictions are in {output}.")


@contextmanager
def _printed() -> Iterator[TextIO]:
    """Give standard output, for data."""
    sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")  # type: ignore[union-attr]
    yield sys.stdout
    sys.stdout.flush()


def evaluate(model: Store, data: Tables, on_error: OnErrorOption = "stop", json: Json = False) -> None:
    """Score a model on tables that have the target.

    Accuracy for classes, R² and mean absolute error for numbers, the distance
    to the centres for clusters. Use records that it was not fitted to.
    """
    with reporting(json) as report:
        from expunge.cli.scores import show_scores
        from expunge.schema import EncodedTables

        with opened(model, read_only=True) as found:
            tables = EncodedTables(
                schema_of(found, model), data, on_error=on_error, target=has_target(found), keys=(), clip=False
            )
            report.data = show_scores(report, f"{model} on {', '.join(map(str, data))}", found, tables.all())
        report_counts(report, tables)
