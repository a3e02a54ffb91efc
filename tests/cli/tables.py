"""Small tables of people, and schemas for them."""

import csv
import json

import numpy as np

COLUMNS = ("id", "who", "age", "city", "joined", "note", "bill", "sick")
CITIES = ("Rome", "Oslo", "Lima")
WORDS = ("tired", "well", "cough", "fever", "rest", "again")
TARGETS = {
    "sick": '[columns.sick]\nkind = "target"\nvalues = ["no", "yes"]\n[columns.bill]\nkind = "ignore"\n',
    "bill": '[columns.bill]\nkind = "target"\nlow = 0\nhigh = 1000\n[columns.sick]\nkind = "ignore"\n',
    "": '[columns.bill]\nkind = "ignore"\n[columns.sick]\nkind = "ignore"\n',
}


def people(count=60, first=1, seed=1):
    """Rows of people, two of each, whose ids go up from ``first``."""
    rng = np.random.default_rng([seed, first])
    rows = []
    for number in range(first, first + count):
        age, city = int(rng.integers(1, 100)), str(rng.choice(CITIES))
        note = " ".join(rng.choice(WORDS, 3))
        bill = round(5.0 * age + 100.0 * (city == "Oslo") + float(rng.uniform(0, 20)), 2)
        sick = "yes" if age + 20 * ("fever" in note) > 60 else "no"
        day = f"20{int(rng.integers(10, 25))}-{int(rng.integers(1, 13)):02}-{int(rng.integers(1, 29)):02}"
        rows.append((number, f"S-{(number + 1) // 2:04}", age, city, day, note, bill, sick))
    return rows


def schema(target="sick", *, subject=False, id="integer", confirmed=True, age="low = 0\nhigh = 120"):
    """A schema for them, as TOML."""
    return f"""format = "expunge schema 1"
confirmed = {str(confirmed).lower()}
[columns.age]
kind = "numeric"
{age}
[columns.city]
kind = "categorical"
values = {json.dumps(CITIES)}
[columns.joined]
kind = "date"
low = 2010-01-01
high = 2026-01-01
[columns.note]
kind = "text"
buckets = 8
[columns.id]
kind = "{"id" if id else "ignore"}"
{f'type = "{id}"' if id else ""}
[columns.who]
kind = "{"subject" if subject else "ignore"}"
{TARGETS[target]}"""


def write_csv(path, rows, columns=COLUMNS):
    """Write rows as CSV."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def write_parquet(path, rows, columns=COLUMNS):
    """Write rows as Parquet, with types of their own."""
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))), path)
    return path


def write_jsonl(path, rows, columns=COLUMNS):
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows), "utf-8")
    return path


WRITERS = {"csv": write_csv, "parquet": write_parquet, "jsonl": write_jsonl}
