"""What to choose, in words, from the figures of a forecast."""

from __future__ import annotations

from expunge.audit.forecast.facts import Forecast
from expunge.base.wording import duration

MINUTE = 60.0


def advise(found: Forecast) -> tuple[str, ...]:
    """Return a few sentences: when ρ = 1 is better, whether noise costs accuracy, and what else is to be noticed."""
    plan = found.plan
    if plan.never_replays:
        return ("There is no noise, and no deletion replays: rho does not matter.",)
    said = _of_sample(found) if plan.samples else [_of_rho(found), *_of_accuracy(found), *plan.advice()]
    if not plan.covers(found.records):
        low, high = plan.size_class
        said.append(f"The plan is for {low:,} to {min(high, plan.largest):,} records: correct expected_records.")
    return tuple(said)


def _of_sample(found: Forecast) -> list[str]:
    """Say how large the sample is that the model's structure comes from."""
    rho, automatic, took = found.rho, found.automatic_rho, found.in_memory
    said = [
        f"About {rho:.3g} of all deletions fit anew, of records in the sample; all others take {duration(took.kept)}."
    ]
    if 2.0 * rho < automatic:
        said.append(f"The sample may be too small: rho is {automatic / rho:.2g} times below what 'auto' gives.")
    elif 2.0 * automatic < rho:
        said.append(f"A lower rho, down to {automatic:.3g}, would hardly cost accuracy, and fewer deletions fit anew.")
    return said


def _of_rho(found: Forecast) -> str:
    """Say what a deletion takes with and without noise."""
    mine, silent, automatic = found.in_memory.deletion, found.without_noise, found.automatic_rho
    if found.rho < 1.0:
        if silent.deletion <= mine:
            return "rho = 1 is the better choice here: deletions are no slower, and there is no noise."
        many = int(MINUTE / silent.deletion)
        rare = f"Up to {many:,} deletions a day take less than a minute" if many else "One takes over a minute"
        better = ": if there are fewer, rho = 1 is the better choice." if many else "; rho = 1 is for rare deletions."
        return (
            f"With rho = 1 a deletion takes {duration(silent.deletion)} instead of {duration(mine)}, and there is no "
            f"noise. {rare}{better}"
        )
    if automatic < 1.0:
        return (
            f"rho = 1: no noise, and a deletion takes {duration(mine)}, {_share(mine, silent.fit)} of a fit. With rho "
            f"= {automatic:.3g} (what 'auto' gives) most take {duration(found.in_memory.kept)}, with hardly any loss "
            "of accuracy."
        )
    return (
        f"rho = 1: with so few records, noise would cost accuracy. Every deletion replays, in {duration(mine)}, "
        f"{_share(mine, silent.fit)} of a fit. Retraining any model is as exact, and may be as fast."
    )


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}"


def _of_accuracy(found: Forecast) -> list[str]:
    """Say whether the noise costs accuracy, if ρ was chosen."""
    rho, automatic = found.rho, found.automatic_rho
    if rho < automatic and found.plan.plans_share:
        return [
            f"The noise may cost accuracy: rho = {rho:.3g} is {automatic / rho:.2g} times below what 'auto' gives. Ten "
            "times cost up to half a point; at a hundred times the model is least squares."
        ]
    if rho < automatic:
        return [
            f"The noise will cost accuracy: n·rho is {found.plan.records * rho:,.0f} with rho = {rho:.3g}. For almost "
            f"no loss it should be {found.plan.records * automatic:,.0f} (rho = {automatic:.3g}). The noise is "
            f"{automatic / rho:.2g} times as strong as that. In docs/accuracy.md, 2 to 3 times cost 0 to 1.5 points of "
            "accuracy, 6 to 17 times cost 1 to 5 and more."
        ]
    if automatic < rho < 1.0:
        return [
            f"A lower rho, down to {automatic:.3g}, would cost hardly any accuracy, and fewer deletions would replay."
        ]
    return []
