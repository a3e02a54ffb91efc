"""Tables of a classifier's scores in a report: predictions, precision and recall by class, calibration."""

from __future__ import annotations

from collections.abc import Iterator

from expunge.audit.findings import Calibration, ClassScore, Score
from expunge.audit.page import shown, table

MOST_CLASSES = 12
"""How many classes a table of predictions has at most."""
MOST_LINES = 50
"""How many classes a table of precision and recall has at most."""


def score_tables(score: Score) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the title and the content of each table."""
    if score.kind == "classes" and len(score.labels) <= MOST_CLASSES:
        yield "predictions", "Predictions on the test records", _confusion(score)
    if score.classes:
        yield "classes", "Precision and recall by class", _by_class(score.classes)
    if score.calibration is not None:
        yield "calibration", "Predicted probabilities and what was observed", _reliability(score.calibration)


def _confusion(score: Score) -> str:
    most = max((max(row) for row in score.counts), default=0) or 1
    right = sum(
        score.counts[j][j] for j in range(min(len(score.counts), len(score.labels))) if j < len(score.counts[j])
    )
    columns = score.labels[: len(score.counts[0])] if score.counts else ()

    def cell(row: int, column: int) -> str:
        share = score.counts[row][column] / most
        color = "31,90,150" if row == column else "194,80,10"
        return f'<td style="background:rgba({color},{0.45 * share:.3f})">{score.counts[row][column]:,}</td>'

    body = "".join(
        f'<tr><th scope="row">{shown(label, 40)}</th>'
        + "".join(cell(row, column) for column in range(len(columns)))
        + "</tr>"
        for row, label in enumerate(score.labels)
    )
    heads = "".join(f'<th scope="col">{shown(label, 40)}</th>' for label in columns)
    caption = f"{right:,} of {score.records:,} test records are on the diagonal: predicted correctly."
    return (
        f'<div class="wide"><table class="confusion"><caption>{caption}</caption>'
        f'<thead><tr><th scope="col">true ↓ &nbsp; predicted →</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def largest_classes(classes: tuple[ClassScore, ...], most: int) -> tuple[ClassScore, ...]:
    """Return those with the most test records, in their order."""
    kept = sorted(range(len(classes)), key=lambda j: -classes[j].records)[:most]
    return tuple(classes[j] for j in sorted(kept))


def share_or_dash(value: float | None) -> str:
    """Return a share for a table; a dash where it is undefined.

    >>> share_or_dash(0.5), share_or_dash(None)
    ('0.500', '–')
    """
    return "–" if value is None else f"{value:.3f}"


def _by_class(classes: tuple[ClassScore, ...]) -> str:
    kept = largest_classes(classes, MOST_LINES)
    rows = (
        [shown(one.label, 40), f"{one.records:,}", share_or_dash(one.precision), share_or_dash(one.recall)]
        for one in kept
    )
    note = (
        "<p>Precision: of the records that the model puts into a class, the share that is of this class. Recall: of "
        "the records of a class, the share that the model puts into it. – means that there are no such records.</p>"
    )
    caption = "" if len(kept) == len(classes) else f"The {len(kept)} of {len(classes):,} classes with the most records."
    heads = ["Class", "Test records", "Precision", "Recall"]
    return note + table(heads, rows, caption=caption, kind="stacked brief", numbers=(1, 2, 3))


def _reliability(calibration: Calibration) -> str:
    rows = (
        [f"{one.low:.1f} to {one.high:.1f}", f"{one.records:,}", f"{one.predicted:g}", f"{one.observed:g}"]
        for one in calibration.bins
    )
    note = f"<p>The {shown(probability_of(calibration))}, and how often this class was true.</p>"
    heads = ["Predicted probability", "Test records", "Its mean", "Observed share"]
    return note + table(heads, rows, kind="stacked brief", numbers=(1, 2, 3))


def probability_of(calibration: Calibration) -> str:
    """Say which probability it is.

    >>> probability_of(Calibration("yes", ())), probability_of(Calibration(None, ()))
    ('probability of class yes', 'probability of the class that the model names')
    """
    what = "the class that the model names" if calibration.of is None else f"class {calibration.of}"
    return f"probability of {what}"
