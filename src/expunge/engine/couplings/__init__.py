"""How a request turns old noise into new: one file for each coupling.

A coupling is a function of the stored pass (`common.OldPass`). It sums what the request changes along the stored path,
tosses its coins, and returns a `common.Verdict`: the sums to be kept with the old answers, and from where, with which
noise, the rest is computed again."""
