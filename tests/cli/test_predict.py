"""`expunge predict` and `expunge evaluate`."""

import os

import pytest

from cli.conftest import contents, flat
from cli.tables import COLUMNS, people, write_csv

PREDICT, EVALUATE = ("predict", "m.expunge"), ("evaluate", "m.expunge")


# --- predictions --------------------------------------------------------------------------------------


def test_predictions_go_to_standard_output_as_csv(model, run):
    model()
    result = run(*PREDICT, "others.csv")
    assert (result.code, result.err) == (0, "")
    header, *lines = result.out.splitlines()
    assert header == '"id","prediction","probability of no","probability of yes"'
    assert len(lines) == 20
    for line in lines:
        _, label, no, yes = line.split(",")
        assert abs(float(no) + float(yes) - 1.0) < 1e-5
        assert label == ('"yes"' if float(yes) > 0.5 else '"no"')


def test_predictions_go_to_a_file(model, done, tmp_path):
    model()
    assert "20 predictions are in p.csv." in done(*PREDICT, "others.csv", "-o", "p.csv")
    assert (tmp_path / "p.csv").read_text() == done(*PREDICT, "others.csv")
    (tmp_path / "p.csv").write_text("old")
    found = done(*PREDICT, "others.csv", "-o", "p.csv", "--force", "--json")
    assert (found["predictions"], found["records"], found["data"]["skipped"]) == ("p.csv", 20, 0)
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 21


def test_records_without_ids_are_named_by_their_lines_and_no_target_is_needed(model, done, tmp_path):
    model()
    write_csv(tmp_path / "new.csv", [row[2:6] for row in people(3)], COLUMNS[2:6])
    lines = done(*PREDICT, "new.csv").splitlines()
    assert [line.split(",")[0] for line in lines] == ['"line"', "2", "3", "4"]


def test_a_table_without_records_has_no_predictions(model, done, tmp_path):
    model("ridge")
    write_csv(tmp_path / "none.csv", [])
    assert done(*PREDICT, "none.csv") == '"id","prediction"\n'


def test_what_was_clipped_unknown_or_skipped_is_told_apart_from_predictions(model, run, tmp_path):
    model()
    rows = [list(row) for row in people(6, 101)]
    rows[0][2], rows[1][3], rows[2][2] = 500, "Bonn", "old"
    write_csv(tmp_path / "odd.csv", rows)
    result = run(*PREDICT, "odd.csv", "--on-error", "skip")
    assert (result.code, len(result.out.splitlines())) == (0, 6)
    for word in ("1 broken record was skipped: odd.csv: line 4", "clipped to it: age 1.", '"other": city 1.'):
        assert word in flat(result.err)


# --- scores -------------------------------------------------------------------------------------------


def test_an_evaluation_of_classes(model, done):
    model()
    said = flat(done(*EVALUATE, "others.csv"))
    assert "m.expunge on others.csv records 20 accuracy" in said
    found = done(*EVALUATE, "others.csv", "--json")
    assert found["classes"] == ["no", "yes"]
    assert sum(map(sum, found["confusion"])) == found["records"] == 20
    assert found["accuracy"] == (found["confusion"][0][0] + found["confusion"][1][1]) / 20
    assert 0.5 <= found["largest_class"] < 1.0


def test_an_evaluation_of_numbers_and_of_clusters(model, done):
    model("ridge")
    found = done(*EVALUATE, "others.csv", "--json")
    assert found["r2"] > 0.5
    assert found["mean_absolute_error"] > 0
    model("kmeans")
    found = done(*EVALUATE, "others.csv", "--json")
    assert sum(found["clusters"]) == 20
    assert 0 < found["mean_squared_distance"] < 4


def test_an_evaluation_has_the_scores_that_people_need(model, done):
    model()
    said = flat(done(*EVALUATE, "others.csv"))
    for part in (" AUC ", " log-loss ", " expected calibration error ", "class records precision recall",
                 "calibration: the probability of class yes"):  # fmt: skip
        assert part in said
    found = done(*EVALUATE, "others.csv", "--json")
    assert 0.0 <= found["auc"] <= 1.0
    assert found["log_loss"] > 0.0
    assert 0.0 < found["expected_calibration_error"] <= 1.0
    no, yes = found["by_class"]
    assert [no["label"], yes["label"]] == ["no", "yes"]
    assert [no["records"], yes["records"]] == [sum(row) for row in found["confusion"]]
    assert yes["recall"] == pytest.approx(found["confusion"][1][1] / yes["records"], abs=1e-3)
    assert found["calibration"]["of"] == "yes"
    bins = found["calibration"]["bins"]
    assert sum(one["records"] for one in bins) == 20
    assert all(one["low"] <= one["predicted"] <= one["high"] for one in bins)


def test_an_evaluation_without_probabilities(model, done):
    model("svm")
    found = done(*EVALUATE, "others.csv", "--json")
    assert 0.0 <= found["auc"] <= 1.0
    assert [*found["by_class"][0]] == ["label", "records", "precision", "recall"]
    assert not {"log_loss", "expected_calibration_error", "calibration"} & set(found)
    assert "calibration" not in done(*EVALUATE, "others.csv")


def test_an_evaluation_on_one_class_says_that_there_is_no_auc(model, run, done, tmp_path):
    model()
    write_csv(tmp_path / "one.csv", [row for row in people(40, 101) if row[7] == "no"])
    found = done(*EVALUATE, "one.csv", "--json")
    assert found["auc"] is None
    assert found["notes"] == ["AUC is undefined: all test records are of one class."]
    result = run(*EVALUATE, "one.csv")
    assert "AUC undefined" in flat(result.out)
    assert "Note: AUC is undefined: all test records are of one class." in flat(result.err)


def test_an_evaluation_of_equal_numbers_has_no_r2(model, done, tmp_path):
    model("ridge")
    found = done(*EVALUATE, "others.csv", "--json")
    assert found["root_mean_squared_error"] ** 2 == pytest.approx(found["mean_squared_error"], rel=1e-3)
    rows = [(*row[:6], 100, row[7]) for row in people(20, 101)]
    write_csv(tmp_path / "same.csv", rows)
    found = done(*EVALUATE, "same.csv", "--json")
    assert found["r2"] is None
    assert found["mean_absolute_error"] > 0
    assert found["notes"] == ["R² is undefined: all targets are equal."]


# --- what is refused ----------------------------------------------------------------------------------

OUTPUTS = {
    "a file that is there": (
        3,
        "people.csv: this file exists already; give another name, or --force",
        "people.csv",
    ),
    "a folder": (3, ".: a folder; give the name of a file in it", "."),
    "a folder that is not there": (3, "no/p.csv: no such folder: no; make it first", "no/p.csv"),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_outputs_that_cannot_be_written_are_refused(case, model, refused):
    code, said, path = OUTPUTS[case]
    model()
    refused(code, said, *PREDICT, "others.csv", "-o", path)


def test_predictions_and_json_cannot_both_go_to_standard_output(model, run):
    model()
    found = run(*PREDICT, "others.csv", "--json")
    assert (found.code, found.data["error"]["exit_code"]) == (3, 3)
    assert "give -o FILE" in found.data["error"]["message"]


@pytest.mark.parametrize("command", [PREDICT, EVALUATE])
def test_tables_that_do_not_fit_are_refused_and_no_half_file_is_left(command, model, refused, tmp_path):
    model()
    rows = [list(row) for row in people()]
    rows[50][2] = "old"
    write_csv(tmp_path / "odd.csv", rows)
    write_csv(tmp_path / "lack.csv", [row[3:] for row in people()], COLUMNS[3:])
    (tmp_path / "empty.csv").write_text("")
    write_csv(tmp_path / "p.csv", [])
    output = ("-o", "p.csv", "--force") if command is PREDICT else ()
    refused(3, "odd.csv: line 52 (column 'age': not a number); fix the file", *command, "odd.csv", *output)
    refused(3, "lack.csv: no column 'age'; there are 'city'", *command, "lack.csv", *output)
    refused(3, "empty.csv: empty", *command, "empty.csv", *output)
    refused(3, "nothing.csv: no such file", *command, "nothing.csv", *output)
    refused(2, "Missing argument 'DATA'", *command)


def test_a_table_without_the_target_or_without_records_cannot_be_scored(model, refused, tmp_path):
    model()
    write_csv(tmp_path / "new.csv", [row[:7] for row in people()], COLUMNS[:7])
    refused(3, "new.csv: no column 'sick'", *EVALUATE, "new.csv")
    write_csv(tmp_path / "none.csv", [])
    refused(3, "none.csv: no records; give at least one", *EVALUATE, "none.csv")


def test_a_reader_that_leaves_ends_it_quietly(model, start, tmp_path):
    model()
    write_csv(tmp_path / "many.csv", people(5000, 101))
    before = contents(tmp_path)
    here, there = os.pipe()
    command = start(*PREDICT, "many.csv", out=there)
    os.close(there)
    with os.fdopen(here) as file:
        assert file.readline().startswith('"id","prediction"')
    result = command.wait()
    assert (result.code, result.err) == (0, "")
    assert contents(tmp_path) == before
