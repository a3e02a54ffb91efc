"""`expunge predict` and `expunge evaluate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from expunge.base.errors import BadPlan
from expunge.base.wording import are, counted
from expunge.cli.cells import Cells
from expunge.cli.models import has_target, opened, schema_of
from expunge.cli.options import Encoding, Force, Json, OnErrorOption, Store, Tables, check_output, written
from expunge.cli.output import reporting
from expunge.cli.train import report_counts

Predictions = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="A CSV file; by default standard output.")
]
AsIs = Annotated[
    bool, typer.Option("--as-is", help="Write ids and classes unchanged, even if a spreadsheet would run them.")
]


def predict(
    model: Store,
    data: Tables,
    output: Predictions = None,
    force: Force = False,
    as_is: AsIs = False,
    encoding: Encoding = None,
    on_error: OnErrorOption = "stop",
    json: Json = False,
) -> None:
    """Predict for the records of tables.

    Writes CSV with the id (or the line) of each record, the prediction, and for
    logistic regression the probability of each class. The model does not
    change.

    Texts are in quotes. A text that begins with =, +, -, @, a tab or CR gets an
    apostrophe before it, because a spreadsheet would run it as a formula. So
    does the part after a semicolon, a bar, a tab or a line break in a text.
    Numbers are not changed. --as-is omits the apostrophes, for programs that
    read the file.
    """
    with reporting(json) as report:
        if json and output is None:
            raise BadPlan("--json: predictions and JSON cannot both go to standard output; give -o FILE.")
        if output is not None:
            check_output(output, force, [model, *data])
        with opened(model, read_only=True) as found, _printed() if output is None else written(output) as file:
            tables, name = _named_if_possible(found, model, data, on_error, encoding)
            cells = Cells(file, as_is=as_is)
            _write_predictions(cells, found, tables, name)
        report_counts(report, tables)
        if cells.quoted:
            report.note(
                f"{counted(cells.quoted, 'text')} got an apostrophe, since a spreadsheet would run them as formulas; "
                "--as-is omits it."
            )
        records = tables.counts.rows
        report.data |= {"predictions": None if output is None else str(output), "records": records}
        report.data["apostrophes"] = cells.quoted
        if output is not None:
            report.say(f"{counted(records, 'prediction')} {are(records)} in {output}.")


def _named_if_possible(
    model: Any, path: Path, data: list[Path], on_error: Any, encoding: str | None
) -> tuple[Any, str | None]:
    """Return tables without targets, and the name of their column of ids if all of them have it."""
    from expunge.models.ingest import takes_sparse
    from expunge.tables.schema import EncodedTables

    how: dict[str, Any] = {
        "on_error": on_error, "target": False, "sparse": takes_sparse(model), "encoding": encoding,
    }  # fmt: skip
    tables = EncodedTables(schema_of(model, path), data, **how, keys=())
    key = tables.schema.id
    if key is None or not all(key.name in table.names for table in tables.tables):
        return tables, None
    return EncodedTables(tables.schema, data, **how, keys=("id",)), key.name


def _write_predictions(cells: Cells, model: Any, tables: Any, name: str | None) -> None:
    """Write the prediction of each record beside its id, or its line if ids have no name."""
    import numpy as np

    chances = hasattr(model, "predict_proba")
    label = "prediction" if has_target(model) else "cluster"
    names = [f"probability of {one}" for one in model.classes_.tolist()] if chances else []
    cells.write([["line" if name is None else name, label, *names]])
    for block in tables.blocks():
        X = block.X.astype(np.float64)
        parts: list[Any] = [block.lines if block.ids is None else block.ids, model.predict(X)]
        if chances:
            parts += list(model.predict_proba(X).T.round(6))
        cells.write(zip(*[part.tolist() for part in parts], strict=True))


@contextmanager
def _printed() -> Iterator[TextIO]:
    """Give standard output, for data."""
    sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")  # type: ignore[union-attr]
    yield sys.stdout
    sys.stdout.flush()


def evaluate(
    model: Store, data: Tables, encoding: Encoding = None, on_error: OnErrorOption = "stop", json: Json = False
) -> None:
    """Score a model on tables that have the target.

    For classes: accuracy, AUC, precision and recall by class, and if the model
    has probabilities log-loss and calibration. For numbers: R², mean absolute
    error and (root) mean squared error. For clusters: the distance to the
    centres. Use records that the model was not trained on.
    """
    with reporting(json) as report:
        from expunge.cli.scores import show_scores
        from expunge.models.ingest import takes_sparse
        from expunge.tables.schema import EncodedTables

        with opened(model, read_only=True) as found:
            tables = EncodedTables(
                schema_of(found, model), data, on_error=on_error, target=has_target(found), keys=(), clip=False,
                sparse=takes_sparse(found), encoding=encoding,
            )  # fmt: skip
            title = f"{model} on {', '.join(map(str, data))}"
            report.data = show_scores(report, title, found, tables.some_blocks())
        report_counts(report, tables)
