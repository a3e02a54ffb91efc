"""The sequential coupling: a coin for each row, in order, until the first that jumps.

Ullah & Arora (2023), "From adaptive query release to machine unlearning", Algorithm TreeUnlearn, its errors corrected
(`tests/paper` shows each). Proof: docs/guarantee.md#sequential.
"""

from __future__ import annotations

import math

import numpy as np

from expunge.base.types import Array
from expunge.engine.couplings.common import KEPT, OldPass, Verdict, changes, keep_or_jump, replay_probability
from expunge.engine.mechanisms.noise import GivenNoise


def row_by_row(old: OldPass) -> Verdict:
    """Keep each row, or let it jump, by itself; after the first jump no more coins."""
    verdict = Verdict()
    if not old.touched:
        return verdict
    found = changes(old)
    distances, projections = whitened(old, found.shifts)
    for position, (distance, projection) in enumerate(zip(distances.tolist(), projections.tolist(), strict=True)):
        row, new = old.touched[position], found.sums[position]
        verdict.probabilities.append(replay_probability(distance))
        toss = keep_or_jump(distance, projection, old.coins)
        if not toss.kept:
            noise = old.noise(old.horizon)
            noise[row] -= toss.moved(found.shifts[position])
            return verdict.replay(row, GivenNoise(noise), new)
        verdict.sums[row] = new
    return verdict


def whitened(old: OldPass, shifts: Array) -> tuple[Array, Array]:
    """Return, for each touched row, how far it shifts and the noise along that, in units of its standard deviation."""
    touched = old.touched
    scales = old.sigma * old.mechanism.scales(old.horizon)[touched]
    lengths = np.sqrt(np.einsum("ij,ij->i", shifts, shifts))
    noise = old.answers[touched] - old.grid.met(old.sums[touched])
    along = np.einsum("ij,ij->i", noise, shifts)
    return lengths / scales, along / (scales * np.where(lengths > 0.0, lengths, 1.0))


def sequential(old: OldPass) -> Verdict:
    """Keep or jump row by row; after the first jump no more coins. (docs/guarantee.md#sequential)"""
    if not old.mechanism.prefix:
        return row_by_row(old)
    verdict = Verdict()
    mechanism, horizon = old.mechanism, old.horizon
    seen_by: dict[int, list[int]] = {}  # row -> the touched steps that it sees
    for step in old.touched:
        rows = mechanism.column(step, horizon).rows
        for row in range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist():
            seen_by.setdefault(row, []).append(step)
    noise = old.noise(horizon)
    scales = mechanism.scales(horizon)
    shifts: dict[int, Array] = {}
    moves = np.zeros_like(noise)
    for row in sorted(seen_by):
        new = None
        if row in seen_by[row]:
            new, shifts[row] = old.changed(row)
        shift = sum((shifts[step] for step in seen_by[row]), np.zeros(noise.shape[1]))
        length, scale = math.sqrt(shift @ shift), old.sigma * scales.item(row)
        toss = KEPT
        if length > 0.0:
            xi = noise[row] - mechanism.carry(noise, row)
            toss = keep_or_jump(length / scale, float(xi @ shift) / (scale * length), old.coins)
        verdict.probabilities.append(replay_probability(length / scale))
        moves[row] = toss.move * shift
        if not toss.kept:
            return verdict.replay(row, GivenNoise(noise - mechanism.color(moves)), new)
        if new is not None:
            verdict.sums[row] = new
    return verdict
