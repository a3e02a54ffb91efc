"""What an audit finds, as plain data that can be written to JSON. Nothing in it says how a past request went."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from expunge.solvers.plans.protocol import Drawing

FORMAT = "expunge audit 2"
Result = Literal["passed", "attention", "problem", "measured", "not checked"]
Status = Literal["live", "waiting", "gone", "absent", "left", "unclear", "not checked"]
"""What became of someone.

- live: in the model
- waiting: not in it, but in a request that was recorded and is not finished
- gone: not in it, and no byte in its files
- absent: among no ids, subjects, records or waiting requests, all of them read; too short to look for its bytes
- left: not in it, but its bytes are in its files
- unclear: not in it; such bytes are there, but may be a part of something that belongs there
- not checked: not in it; too short to look for in files that are left over
"""


@dataclass(frozen=True)
class Check:
    """One thing that was checked."""

    key: str
    name: str
    result: Result
    finding: str
    """What came out, in a sentence or two."""
    shows: str
    does_not_show: str
    problems: tuple[str, ...] = ()
    """Everything that is wrong, line by line; people are not named."""


@dataclass(frozen=True)
class PlanLine:
    """A line of the plan: what was fixed before the records were seen."""

    name: str
    value: str
    meaning: str


@dataclass(frozen=True)
class Facts:
    """What the model is. Of a file that cannot be opened only its name and size are known."""

    file: str
    """The name of the file, without its folder."""
    bytes: int
    model: str | None = None
    records: int | None = None
    features: int | None = None
    parameters: int | None = None
    classes: tuple[str, ...] = ()
    store: str | None = None
    """The random name of the store."""
    version: int | None = None
    receipts: int | None = None
    head: str | None = None
    """The hash of the last receipt: to be noted elsewhere."""
    schema: Literal["none", "confirmed", "not confirmed"] | None = None
    plan: tuple[PlanLine, ...] = ()


@dataclass(frozen=True)
class Noise:
    """The noise in the transcript, in units of its planned size.

    Everything is rounded to about what chance alone would change. Otherwise a stored report would be a digest of the
    state of its day, which could confirm a guess about someone deleted later.
    """

    numbers: int
    sigma: float
    p_value: float | None
    edges: tuple[float, ...] = ()
    heights: tuple[float, ...] = ()
    """The density between every two edges; none if there are too few numbers."""


@dataclass(frozen=True)
class Activity:
    """What receipts of one kind say of one day."""

    day: str
    kind: str
    requests: int
    removed: int
    added: int


@dataclass(frozen=True)
class ReceiptLine:
    """A receipt, in short."""

    number: int
    day: str
    kind: str
    named_by: str | None
    named: int
    """How many ids or subjects were named."""
    removed: int
    added: int
    version: int
    request: str
    hash: str
    signed: bool


@dataclass(frozen=True)
class Given:
    """What became of an id, a subject or a row that was asked for; who it was is not said."""

    what: Literal["id", "subject", "row"]
    position: int
    """Which of those given, from 1."""
    status: Status
    found: int
    """In how many spots of the files its bytes are."""
    files: tuple[str, ...]
    receipts: int | None
    """How many receipts name it; None if that cannot be known: of rows, or without the key."""
    last_day: str | None
    """The day of the last of them."""


@dataclass(frozen=True)
class Scaled:
    """A setting of the plan that is another in the rehearsal."""

    name: str
    own: str
    """What the model has."""
    here: str
    """What the rehearsal has."""


@dataclass(frozen=True)
class Rehearsal:
    """A deletion on a small problem with the model's own plan, made many times, and training without the record."""

    problem: str
    """What the small problem is."""
    own: tuple[str, ...]
    """Which settings are the model's own."""
    scaled: tuple[Scaled, ...]
    """Which are not."""
    runs: int
    comparisons: int
    level: float
    p_value: float | None
    """Of the comparison; None where states are compared to the last bit."""
    equal: int | None
    """Where states are compared to the last bit: how many of the runs gave equal ones."""
    control: str
    """The mistake that must be caught."""
    control_level: float
    control_p_value: float | None
    control_equal: int | None

    @property
    def passed(self) -> bool:
        """Whether no difference was found."""
        return self.equal == self.runs if self.p_value is None else self.p_value >= self.level

    @property
    def caught(self) -> bool:
        """Whether the mistake was caught."""
        if self.control_p_value is None:
            return self.control_equal == 0
        return self.control_p_value < self.control_level


@dataclass(frozen=True)
class ClassScore:
    """How well a class is recognised."""

    label: str
    records: int
    """How many test records are of this class."""
    precision: float | None
    """The share of those named so that are of this class; None if none is named so."""
    recall: float | None
    """The share of this class that is named so; None if no test record is of this class."""


@dataclass(frozen=True)
class CalibrationBin:
    """Records whose predicted probability is between ``low`` and ``high``.

    Shares are rounded to what the number of records supports.
    """

    low: float
    high: float
    records: int
    predicted: float
    """The mean predicted probability."""
    observed: float
    """The share of which the prediction is true."""


@dataclass(frozen=True)
class Calibration:
    """Whether predicted probabilities are true: what happens in seven of ten cases should be given 0.7."""

    of: str | None
    """The class whose probability it is; None: for each record the class that is named."""
    bins: tuple[CalibrationBin, ...]
    """Those that have records."""


@dataclass(frozen=True)
class Score:
    """How good the model is on records that were given for it."""

    kind: Literal["classes", "numbers", "clusters"]
    records: int
    values: tuple[tuple[str, float | None], ...]
    """What was measured: its name, and its value or None where that is undefined. Of classes, accuracy comes first."""
    labels: tuple[str, ...] = ()
    """Classes, or clusters."""
    counts: tuple[tuple[int, ...], ...] = ()
    """Of classes: a row for each true class, a column for each prediction. Of clusters: one row."""
    edges: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    """For numbers: the share of records whose error is between every two edges."""
    classes: tuple[ClassScore, ...] = ()
    calibration: Calibration | None = None
    """Where the model has probabilities."""
    notes: tuple[str, ...] = ()
    """Sentences: what is undefined, and why."""


@dataclass(frozen=True)
class Audit:
    """Everything that was found out about a stored model."""

    day: str
    versions: tuple[tuple[str, str], ...]
    runs: int
    seed: int
    """What the records and coins of the rehearsal were made from."""
    fresh: bool
    """Whether it was drawn for this audit; otherwise it was given."""
    facts: Facts
    checks: tuple[Check, ...]
    drawing: Drawing | None = None
    noise: Noise | None = None
    rehearsal: Rehearsal | None = None
    given: tuple[Given, ...] = ()
    score: Score | None = None
    activity: tuple[Activity, ...] = ()
    receipts: tuple[ReceiptLine, ...] = ()
    """The last of them."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; some of it may need attention, or could not be checked."""
        return not any(check.result == "problem" for check in self.checks)

    def with_result(self, result: Result) -> tuple[Check, ...]:
        """Return the checks that came out so."""
        return tuple(check for check in self.checks if check.result == result)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {"format": FORMAT, "ok": self.ok, **asdict(self)}
