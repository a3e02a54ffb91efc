"""Without noise (ρ = 1) there is no coin: from the first sum that changes on, all is computed again.

Proof: docs/guarantee.md#no-noise.
"""

from __future__ import annotations

import numpy as np

from expunge.engine.couplings.common import OldPass, Verdict
from expunge.engine.mechanisms.noise import NoNoise


def noiseless(old: OldPass) -> Verdict:
    """σ = 0: replay from the first step whose sum changes; no coins. (docs/guarantee.md#no-noise)

    If that is the last step, and its new sum is known, there is nothing to replay: no other record is looked at.
    """
    verdict = Verdict()
    for step in old.touched:
        new, _ = old.changed(step)
        if not np.array_equal(new, old.sums[step]):
            verdict.probabilities.append(0.0 if old.only_adds(step) else 1.0)
            return verdict.replay(step, NoNoise(), new)
        verdict.sums[step] = new
    return verdict
