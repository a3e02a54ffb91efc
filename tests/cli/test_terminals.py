"""Whatever stands in tables, schemas, models and file names: it cannot steer a terminal, nor run in a spreadsheet."""

import csv
import json
import re
import unicodedata

import numpy as np
import pytest

import expunge
from cli.conftest import flat
from expunge.cli.cells import harmless
from expunge.cli.output import shown, shown_message

EVIL = "\x1b]0x\x07\x1b[31m\x08\x9b2J\x85\x7f\u202e\u2066\u2069\u200e\u200f\u061c\u2028!"
"""Escapes, C0 and C1 controls, DEL, and marks that turn the direction of writing."""
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def steering(text):
    return sorted({f"U+{ord(letter):04X}" for letter in STEERING.findall(text)})


def test_what_steers_is_what_is_looked_for():
    assert len(steering(EVIL)) == 13
    assert steering(shown(EVIL)) == []
    assert all(steering(shown(chr(code))) == [] for code in range(0x3000))
    hidden = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp")]
    assert {letter for letter in hidden if shown(letter) == letter} == set()
    assert shown_message(f"a{EVIL}\nb") == f"a{shown(EVIL)}\n  b"


def quoted(text):
    """A text as TOML has it."""
    return json.dumps(text).replace("\x7f", "\\u007f")


@pytest.fixture
def hostile(tmp_path):
    """A table and a schema in which every name is hostile, and so is its file's."""
    data, name = (
        tmp_path / f"t{EVIL}.csv",
        {role: f"{role}{EVIL}" for role in ("id", "who", "age", "city", "class", "x")},
    )
    rng = np.random.default_rng(0)
    classes, cities = [f"yes{EVIL}", f"no{EVIL}"], [f"Rome{EVIL}", f"Oslo{EVIL}"]
    with open(data, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*name.values(), f"strange{EVIL}"])
        for number in range(60):
            age = int(rng.integers(200))
            city = f"Bonn{EVIL}" if number == 7 else cities[number % 2]
            writer.writerow([f"{number}{EVIL}", f"S{number}{EVIL}", age, city, classes[age > 60], "", number])
    (tmp_path / "schema.toml").write_text(
        f"""format = "expunge schema 1"
[columns.{quoted(name["age"])}]
kind = "numeric"
low = 0
high = 120
[columns.{quoted(name["city"])}]
kind = "categorical"
values = [{", ".join(map(quoted, cities))}]
[columns.{quoted(name["x"])}]
kind = "numeric"
low = 0
high = 1
[columns.{quoted(name["id"])}]
kind = "id"
type = "text"
[columns.{quoted(name["who"])}]
kind = "subject"
type = "text"
[columns.{quoted(name["class"])}]
kind = "target"
values = [{", ".join(map(quoted, classes))}]
"""
    )
    return data


def commands(data):
    """All commands, such that names from data are printed; well and badly used."""
    table, model = str(data), f"m{EVIL}"
    first, erased = f"0{EVIL}", f"1{EVIL}"
    yield "schema", table, "--target", f"class{EVIL}", "--id", f"id{EVIL}", "-o", f"draft{EVIL}.toml"
    yield "schema", table, "--target", f"klass{EVIL}", "-o", "draft2.toml"
    yield "fit", table, "--schema", "schema.toml", "--test", table, "-o", model
    yield "fit", table, "--schema", f"no{EVIL}.toml", "-o", f"n{EVIL}"
    yield "fit", table, "--schema", "schema.toml", "--model", f"x{EVIL}", "-o", f"n{EVIL}"
    yield "plan", "--records", f"1e3{EVIL}", "--features", "3"
    yield "evaluate", model, table
    yield "evaluate", model, f"no{EVIL}.csv"
    yield "predict", model, table, "-o", f"p{EVIL}.csv"
    yield "predict", model, "bad.csv", "-o", "p2.csv"
    yield "info", model, "--details"
    yield "info", f"no{EVIL}"
    yield "unlearn", model, "--id", erased, "--dry-run"
    yield "unlearn", model, "--id", erased, "--outcome"
    yield "unlearn", model, "--id", erased
    yield "unlearn", model, f"no{EVIL}", "--id", erased
    yield "unlearn", model, "--ids-file", table
    yield "unlearn", model, "--ids-file", table, "--column", f"x{EVIL}y"
    yield "unlearn", model, "--subject", f"nobody{EVIL}"
    yield "insert", model, table
    yield "insert", model, "bad.csv"
    yield "replace", model, "bad.csv"
    yield "receipts", model, "--id", erased
    yield "receipts", model, "--noted", EVIL
    yield "receipts", model, "-o", f"r{EVIL}.json"
    yield "receipts", f"r{EVIL}.json"
    yield "verify", model
    yield "scan", model, "--id", first, "--id", erased
    yield "audit", model, "--runs", "100", "--test", table, "--id", erased, "-o", f"a{EVIL}.html"
    yield "replan", model
    yield "compact", model
    yield "backup", model, f"b{EVIL}"
    yield "restore", f"b{EVIL}", model
    yield "restore", f"no{EVIL}", model
    yield "keygen", f"k{EVIL}"
    yield "keygen", f"k{EVIL}"
    yield f"x{EVIL}", "y"
    yield "info", f"--x{EVIL}"
    yield "info", model, f"extra{EVIL}"


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_that_steers_a_terminal_is_printed(as_json, hostile, start, tmp_path):
    lines = hostile.read_text(encoding="utf-8").split("\r\n")
    (tmp_path / "bad.csv").write_text("\n".join([*lines[:3], f"few{EVIL},fields"]), encoding="utf-8")
    codes, printed = {}, ""
    for asked in commands(hostile):
        if as_json and asked[0] in ("audit", "plan"):
            continue  # once is enough: they take long
        result = start(*asked, *(["--json"] * as_json)).wait()
        assert steering(result.out + result.err) == [], asked
        codes.setdefault(asked[0], []).append(result.code)
        printed += result.out + result.err
        if as_json and result.out:
            json.loads(result.out)
    assert {command for command, found in codes.items() if 0 in found} >= {
        "schema", "fit", "evaluate", "predict", "info", "unlearn", "receipts", "verify", "replan", "compact", "backup",
        "restore", "keygen",
    }  # fmt: skip
    assert not {code for found in codes.values() for code in found} & {70, -11}
    for name in ("yes", "no", "class", "strange"):
        assert re.search(rf"{name}(?:\\|\ufffd)", printed), name


def test_json_loses_nothing(hostile, done):
    done("fit", str(hostile), "--schema", "schema.toml", "-o", "m", "--quiet")
    assert done("info", "m", "--json")["classes"] == [f"no{EVIL}", f"yes{EVIL}"]
    assert done("evaluate", "m", str(hostile), "--json")["classes"] == [f"no{EVIL}", f"yes{EVIL}"]


def test_predictions_are_data_in_a_pipe_and_harmless_on_a_terminal(hostile, start, done):
    done("fit", str(hostile), "--schema", "schema.toml", "-o", "m", "--quiet")
    asked = ("predict", "m", str(hostile))
    piped = start(*asked).wait()
    rows = list(csv.reader(piped.out.split("\n")))
    assert rows[0][2] == f"probability of no{EVIL}"
    assert rows[1][0] == f"0{EVIL}"
    seen = start(*asked, terminal=True, env={"TERM": "dumb"}).wait()  # or else notes have colours
    assert steering(seen.out.replace("\r\n", "\n")) == []
    assert "probability of no\ufffd" in seen.out


def test_a_model_made_in_python_is_no_other(start, tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 2))
    labels = np.where(X[:, 0] > 0, f"a{EVIL}", f"b{EVIL}")
    expunge.LogisticRegression(solver="dual_averaging").fit(
        X, labels, ids=[f"{number}{EVIL}" for number in range(50)]
    ).save(tmp_path / "m")
    for asked in (("info", "m"), ("unlearn", "m", "--id", f"3{EVIL}"), ("unlearn", "m", "--id", f"z{EVIL}")):
        result = start(*asked).wait()
        assert result.code in (0, 4)
        assert steering(result.out + result.err) == []


def test_names_and_values_cannot_pass_for_lines_of_their_own(run, tmp_path):
    fake = "a\nError: all is lost\nModel saved."
    X = np.random.default_rng(0).normal(size=(50, 2))
    labels = np.where(X[:, 0] > 0, fake, "b")
    expunge.LogisticRegression(solver="dual_averaging").fit(
        X, labels, ids=[f"{fake}{number}" for number in range(50)]
    ).save(tmp_path / "m")
    for asked in (("info", "m", "--details"), ("unlearn", "m", "--id", f"{fake}3"), ("unlearn", "m", "--id", fake)):
        result = run(*asked)
        lines = [line.strip() for line in result.out.splitlines()] + result.err.splitlines()
        assert not [line for line in lines if line.startswith(("Error: all", "Model saved"))]


# --- spreadsheets -------------------------------------------------------------------------------------

FORMULAS = ["=1+1", "@SUM(A1)", "+1+cmd|' /C calc'!A0", "-2+3", "\uff1d1+1"]
HARMLESS = ["ann", "-3.5", "+49", "1=1", "'=1", "-1e-5", "a-b"]


def test_formulas_are_told_from_numbers():
    assert [harmless(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]
    assert [harmless(text) for text in HARMLESS] == HARMLESS
    assert harmless("\t1") == "'\t1"
    assert harmless("\r1") == "'\r1"
    assert harmless("-") == "'-"


@pytest.mark.parametrize("separator", [";", "|", "\t", "\n", "\r"])
def test_a_formula_after_another_separator_is_one_too(separator):
    assert harmless(f"i1{separator}=1+1") == f"i1{separator}'=1+1"
    assert harmless(f"=a{separator}{separator}@b{separator}-3{separator}c") == (
        f"'=a{separator}{separator}'@b{separator}-3{separator}c"
    )


@pytest.fixture
def formulas(tmp_path, done):
    """A model whose ids and classes are formulas."""
    ids = [*FORMULAS, *HARMLESS]
    with open(tmp_path / "t.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["=id", "age", "class"])
        writer.writerows([[one, 20 + 40 * (number % 2), ["=no()", "-1"][number % 2]] for number, one in enumerate(ids)])
    (tmp_path / "s.toml").write_text(
        'format = "expunge schema 1"\nconfirmed = true\n[columns."=id"]\nkind = "id"\ntype = "text"\n[columns.age]\n'
        'kind = "numeric"\nlow = 0\nhigh = 100\n[columns.class]\nkind = "target"\nvalues = ["=no()", "-1"]\n'
    )
    done("fit", "t.csv", "--schema", "s.toml", "-o", "m", "--rho", 1)
    return ids


def test_texts_that_a_spreadsheet_would_run_get_an_apostrophe(formulas, run, tmp_path):
    result = run("predict", "m", "t.csv", "-o", "p.csv")
    rows = list(csv.reader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["'=id", "prediction", "probability of -1", "probability of =no()"]
    assert [row[0] for row in rows[1:]] == [f"'{one}" for one in FORMULAS] + HARMLESS
    assert {row[1] for row in rows[1:]} <= {"'=no()", "-1"}
    quoted = sum(cell.startswith("'") and cell != "'=1" for row in rows for cell in row)
    assert f"Note: {quoted} texts got an apostrophe, since a spreadsheet would run them as formulas; --as-is" in flat(
        result.err
    )
    assert run("predict", "m", "t.csv").out == (tmp_path / "p.csv").read_text(encoding="utf-8")
    assert run("predict", "m", "t.csv", "-o", "q.csv", "--json").data["apostrophes"] == quoted


def test_texts_are_in_quotes_and_numbers_are_not(formulas, run):
    first, *lines = run("predict", "m", "t.csv").out.splitlines()
    assert first == '"\'=id","prediction","probability of -1","probability of =no()"'
    for line in lines:
        assert re.fullmatch(r'"[^"]*","(?:-1|\'=no\(\))",[\d.e-]+,[\d.e-]+', line)


def test_they_stay_as_they_are_if_so_asked(formulas, run, tmp_path):
    result = run("predict", "m", "t.csv", "-o", "p.csv", "--as-is")
    rows = list(csv.reader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()))
    assert [row[0] for row in rows] == ["=id", *formulas]
    assert result.err == ""


def test_numbers_stay_numbers(model, done):
    model("ridge")
    for line in done("predict", "m.expunge", "others.csv").splitlines()[1:]:
        assert [float(cell) for cell in line.split(",")]
