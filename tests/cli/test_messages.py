"""What commands say: in the words of the prompt, and not about people; singular and plural; and what operators need."""

import ast
import re
from pathlib import Path

import pytest

import expunge
from cli.conftest import flat
from cli.tables import people, write_csv
from expunge.cli.phrases import at_the_prompt

SOURCE = Path(expunge.__file__).parent
PYTHON = re.compile(r"\w\(\)|\w\(path|\bread_only\b|\bsign_with\b|\b[a-z]\w*=(?![=\"])|\b(?:None|True|False)\b")
"""What only who writes Python understands."""
ELSEWHERE = (
    "can be neither pickled nor copied",  # what no command does
    "opened with read_only; open it without",
    "this model is in memory only",
    "progress=True needs rich",
    "named_by: expected",
    'on_error=…: give "stop" or "skip"',
    "rows=…: give a number of records",
    "features=…: give a list",
    "features=",  # of tables that are ingested in Python
    "give its toarray()",
    "memory=…: give",
    "seed=…: give",
    "runs=…: at least 100",
    "folder=…: cannot be written to",
    "class_weight",
    "open it with expunge.open",  # what a federation's file says of a model's
    "bits=…: give 32 or 64",
)
"""What no command can lead to, or what is no message."""


def said_in(path):
    """The texts of a module that are no documentation, with 1 in the place of values."""
    tree = ast.parse(path.read_text())
    blocks = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
    passed_over = {id(part.value) for block in blocks for part in block if isinstance(part, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            passed_over |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def is_message(text):
    """Whether a text is one that a command may print: neither SQL nor HTML, nor what no command leads to."""
    if " " not in text.strip() or re.match(r"[A-Z]{2,} ", text) or re.search(r"<\w|[{}]", text):
        return False
    return not any(part.replace("…", "1") in text for part in ELSEWHERE)


@pytest.mark.parametrize("room", ["cli", "store", "tables", "audit"])
def test_errors_speak_the_language_of_the_prompt(room):
    modules = [path for path in sorted((SOURCE / room).rglob("*.py")) if path.name != "phrases.py"]
    messages = [(path.name, at_the_prompt(text)) for path in modules for text in said_in(path) if is_message(text)]
    strange = [f"{module}: {message}" for module, message in messages if PYTHON.search(message)]
    assert messages
    assert not strange, "say it in cli/phrases.py, or list it in ELSEWHERE:\n" + "\n".join(strange)


def test_parameters_become_options_and_files_stay_files():
    assert at_the_prompt("rho=2.0: give a probability.") == "--rho 2.0: give a probability."
    assert at_the_prompt("n_clusters=9: give fewer, or rho=1, which") == "--clusters 9: give fewer, or --rho 1, which"
    assert at_the_prompt("target='x y': it has none.") == "--target 'x y': it has none."
    for text in ("rho=1.csv: no such file.", "no/wait=3: there is none.", "column 'alpha=2': appears twice."):
        assert at_the_prompt(text) == text


def test_a_key_that_is_lost(model, refused, tmp_path):
    model()
    (tmp_path / "m.expunge-key").unlink()
    said = refused(5, "copy it from a backup; it is beside the backup's file", "unlearn", "m.expunge", "--id", 1)
    assert "read_only" not in said
    assert "`expunge predict`, `evaluate`, `info` and `receipts` still work" in said
    assert "make a new model with `expunge fit`" in said


def test_a_lost_model_asks_for_its_receipts(model, done, refused, tmp_path):
    path = model()
    done("backup", "m.expunge", "monday")
    done("unlearn", "m.expunge", "--id", 7)
    done("receipts", "m.expunge", "-o", "old.json")
    path.unlink()
    said = refused(5, "Give as --receipts what `expunge receipts -o` wrote last", "restore", "monday", "m.expunge")
    assert "export_receipts" not in said


@pytest.mark.parametrize("flag", ["--id", "--ids-file", "--subject", "--subjects-file"])
def test_the_option_that_was_given_is_the_one_that_is_named(flag, model, done, refused, tmp_path):
    model()
    done("receipts", "m.expunge", "-o", "r.json")
    (tmp_path / "7").write_text("7\n")
    refused(3, f"Error: {flag}: exported receipts name people by digests only", "receipts", "r.json", flag, "7")


def test_one_is_not_many(model, done, tmp_path, run):
    model("ridge")
    (tmp_path / "most.txt").write_text("\n".join(map(str, range(2, 61))))
    assert "1 record is in the model now." in done("unlearn", "m.expunge", "--ids-file", "most.txt")
    assert "1 receipt in all, 0 of them signed" in done("receipts", "m.expunge")
    assert "the only step agrees with the 1 record, bit for bit" in flat(done("verify", "m.expunge"))
    assert "1 was found." in run("scan", "m.expunge", "--id", 1).out
    write_csv(tmp_path / "one.csv", people(1))
    assert "1 prediction is in p.csv." in done("predict", "m.expunge", "one.csv", "-o", "p.csv")


def test_what_a_restored_backup_lacks_is_counted_in_records(model, done, tmp_path):
    model()
    done("backup", "m.expunge", "monday")
    write_csv(tmp_path / "better.csv", people(3))
    done("replace", "m.expunge", "better.csv")
    done("insert", "m.expunge", "others.csv")
    done("unlearn", "m.expunge", "--id", 7)
    said = flat(done("restore", "monday", "m.expunge"))
    assert "deleted again 1 record corrected since the backup: replace again 3 records" in said
    assert "inserted since the backup: insert again 20 records" in said


INNER = ("schedule", "mechanism", "coupling", "selector", "steps", "rounding")


def test_how_a_model_is_trained_is_a_detail(model, done, tmp_path):
    model()
    done("fit", "people.csv", "--schema", "schema.toml", "--solver", "dual_averaging", "--rho", 0.5, "-o", "noisy")
    said, more = done("info", "noisy"), done("info", "noisy", "--details")
    for word in INNER:
        assert not re.search(rf"^ *{word} ", said, re.MULTILINE), word
    assert "How it is trained" in more
    for word in ("coupling", "steps", "rounding"):
        assert re.search(rf"^ *{word} ", more, re.MULTILINE), word
    assert "a deletion replays" in said
    assert done("info", "noisy", "--json").keys() >= {"rho", "sigma", "steps", "coupling"}
