"""Noisy sums of per-record contributions and a rule: learn, change, verify.

What is public, and where it lies (what `expunge` has under the same name comes from here):

- `learner`: `Learner`, `Transcript`. `learning`: `learn`. `changing`: `change`, `Change`. `verifying`: `verify`.
- `requests`: `Delete`, `Insert`, `Replace`. `streams`: `apply`. `outcome`: `Outcome`. `randomness`: `Randomness`.
- `schedules`: `Scattered`, `Shuffled`, `Arrival`, `Everyone`. `mechanisms`: `SquareRoot`, `BinaryTree`, `Identity`.
- `contributions`: the protocols `Query`, `Rule` and `Records`, for learners and records of one's own.
- `records.memory`: `MemoryRecords`. `checks`: `check_exact`, `check_same_law`.
- `accounting`: ρ and σ, `noise_for`, `worst_case_rho` and the paper's bounds.

All else is the engine's own. Which file may import which is the contract "Inside the engine" in pyproject.toml.
"""
