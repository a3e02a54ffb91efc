"""What a forecast says."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from expunge.engine.accounting import FOREVER, Expected

UNCERTAINTY = "Seconds are estimates, within a factor of about two."
LONGEST_LIST = 64


@dataclass(frozen=True)
class Times:
    """Seconds, estimated from small problems on this machine."""

    fit: float
    kept: float
    """Of a deletion that is kept."""
    replayed: float
    """Of a deletion that replays, on average; if none ever does, that of any."""
    deletion: float
    """Of a deletion on average, if as many replay as typically do."""


@dataclass(frozen=True)
class Paper:
    """What the paper that all this comes from has for the same number of records, the same ρ and the same bound."""

    sigma: float
    """Its noise, by the constants of its proofs."""
    ratio: float | None
    """How many times ours that is; None if we have none."""
    replay_bound: float
    """Its bound on the probability that a deletion replays. Ours is ρ itself."""
    source: str
    """Which statements of the paper these are."""


@dataclass(frozen=True)
class Forecast:
    """What a model will be like, before any training."""

    model: str
    records: int
    features: int
    plan: Any
    """The plan that a fit would make."""
    rho: float
    automatic_rho: float
    """The ρ whose noise hardly costs accuracy: what ``rho="auto"`` is here."""
    sigma: float
    worst_case: float
    """How likely the least favourable deletion is to replay, recomputed from the noise."""
    typical: Expected
    """How likely the deletion of one record is to replay, and which share of the steps deletions take again.

    Both are averages over records drawn at random: rows about as long as ``feature_norm``, targets that a good model
    gets right five times in six. Real tables are mostly between half and twice that; where nearly all records are easy
    to tell apart, replays are far rarer.
    """
    memory_bytes: int
    """Of a fitted model in memory, its records (in 64 bits) and transcript included; a fit takes two to three times."""
    file_bytes: int
    """Of the file of a model."""
    transcript_bytes: int
    """How much of either is stored in addition to the records."""
    in_memory: Times
    in_file: Times
    """In a file in the measured folder, every request synced; a fit is then one by `expunge.ingest`."""
    without_noise: Times
    """The same model with ρ = 1, in memory: nearly every deletion replays."""
    without_noise_in_file: Times
    paper: Paper | None
    """None if the paper has no such model."""
    advice: tuple[str, ...]
    """In words, what to choose."""
    calibrated_on: int
    """How many records the largest of the small problems had."""
    uncertainty: str = UNCERTAINTY

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, as can be written to JSON."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["plan"] = {field.name: _plain(getattr(self.plan, field.name)) for field in fields(self.plan)}
        found["typical"] = self.typical._asdict()
        for name in ("in_memory", "in_file", "without_noise", "without_noise_in_file"):
            found[name] = asdict(found[name])
        found["paper"] = None if self.paper is None else asdict(self.paper)
        found["advice"] = list(self.advice)
        return found


def _plain(value: Any) -> Any:
    """Return a field of a plan as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, str, float)):
        return value
    if isinstance(value, int):
        return value if value < FOREVER else None  # forever
    if isinstance(value, tuple) and len(value) <= LONGEST_LIST:
        return [_plain(one) for one in value]
    return f"{len(value):,} numbers" if isinstance(value, tuple) else repr(value)
