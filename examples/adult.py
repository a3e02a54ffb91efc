"""The census data set from a CSV file to an erasure report, with the commands that you would type.

    python examples/adult.py

Reads adult.data.gz and adult.test.gz of the UCI data set "Adult" from $EXPUNGE_DATA/adult (by default
../shared/data/adult). Everything it makes, the report at last, is in out/adult. Takes about half a minute.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("EXPUNGE_DATA", HERE.parent.parent / "shared" / "data")) / "adult"
OUT = Path("out/adult")
COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
]  # fmt: skip
LEAVING = 500


def write_table(source: Path, skip: int, path: Path, prefix: str) -> list[str]:
    """Write a part of the data set as CSV, with a header and an id for everyone; return the ids."""
    with gzip.open(source, "rt") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if row][skip:]
    ids = [f"{prefix}-{number:05d}" for number in range(len(rows))]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", *COLUMNS])
        writer.writerows([one, *row] for one, row in zip(ids, rows, strict=True))
    return ids


def run(*arguments: str) -> dict[str, Any]:
    """Run a command, say how long it took, and return what it printed."""
    print("$ expunge", *arguments, flush=True)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "expunge", *arguments, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    said: dict[str, Any] = json.loads(done.stdout)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {said.get('error', said)}")
    print(f"  {time.perf_counter() - began:.1f} s")
    return said


def main() -> None:
    if not DATA.exists():
        sys.exit(f"{DATA}: there is no such folder; set EXPUNGE_DATA to the one that has adult/adult.data.gz.")
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    train, test, model = str(OUT / "adult.csv"), str(OUT / "test.csv"), str(OUT / "adult.expunge")
    people = write_table(DATA / "adult.data.gz", 0, Path(train), "person")
    write_table(DATA / "adult.test.gz", 1, Path(test), "other")

    run("schema", train, "--id", "person", "--target", "income", "-o", str(OUT / "draft.toml"))
    print("  ... read it, put in what is publicly known, confirm it: examples/adult.toml")
    schema = str(HERE / "adult.toml")
    fitted = run("fit", train, "--schema", schema, "--model", "logistic", "--rho", "auto", "-o", model)
    typical, seconds = fitted["replay_probability"]["typical"], fitted["seconds"]["deletion"]
    print(f"  {fitted['records']:,} records, {fitted['features']} features, rho = {fitted['rho']}")
    print(f"  a deletion replays with probability {typical:.3f} typically, and takes about {1e3 * seconds:.0f} ms")
    before = run("evaluate", model, test)["accuracy"]
    leaving = random.sample(people, LEAVING)
    (OUT / "erase.txt").write_text("\n".join(leaving))
    erased = run("unlearn", model, "--ids-file", str(OUT / "erase.txt"))
    print(f"  {erased['receipts'][0]['removed']} people erased, receipt {erased['receipts'][0]['hash'][:12]}")
    after = run("evaluate", model, test)["accuracy"]
    print(f"  accuracy on {test}: {before:.2%} before, {after:.2%} after")
    checked = run("verify", model)
    print(f"  verified: {checked['ok']}, {checked['records']:,} records")
    scanned = run("scan", model, "--ids-file", str(OUT / "erase.txt"))
    left = sum(one["status"] != "gone" for one in scanned["searched"])
    print(f"  {len(scanned['searched'])} people looked for in all bytes of its files; found: {left}")
    report = run(
        "audit", model, "--ids-file", str(OUT / "erase.txt"), "--test", test, "-o", str(OUT / "report.html")
    )  # fmt: skip
    print(f"  nothing wrong found: {report['ok']}. Open {report['report']} in a browser.")


if __name__ == "__main__":
    main()
