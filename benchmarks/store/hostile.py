"""What an attacker does to files, and what comes of it: descriptions altered at random, bytes flipped in every table,
receipts made up, and small files that would fill any memory (`bombs.py`).

Each altered file must open or be refused by name; no receipt that was made up may bring anybody back.

    python benchmarks/store/hostile.py      # 3,000 descriptions and 4,000 flips: about five minutes
"""

from __future__ import annotations

import random
import tempfile
import warnings
from pathlib import Path

from benchmarks.smoke import parser_of, sized
from benchmarks.store.bombs import results
from cases.hostile import flip, forgeries, fuzz, write_models


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--descriptions", type=int, default=sized(3000, 12))
    parser.add_argument("--flips", type=int, default=sized(4000, 10))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [(name, result[:80]) for name, result in results().items()]
        rows += forgeries(folder)
        bases = write_models(folder)
        for base in bases:
            for result, times in fuzz(base, given.descriptions // len(bases), draw).most_common():
                rows.append((f"{base.name}: its description altered, {times:,} times", result))
        for result, times in flip(bases[0], given.flips, draw).most_common():
            rows.append((f"a byte flipped, {times:,} times", result))
    for attack, result in rows:
        print(f"{attack:60} {result}")
    bad = sum("PLAIN" in result for _, result in rows)
    print(f"{bad} attacks with a result that must not be")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
