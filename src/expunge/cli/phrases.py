"""Messages for those who write Python, in words for those who type commands."""

from __future__ import annotations

import re
from collections.abc import Callable

_FLAGS = {
    "alpha": "alpha", "classes": "classes", "expected_records": "expected-records", "features": "features",
    "ignore": "ignore", "n_clusters": "clusters", "records": "records", "records_per_subject": "records-per-subject",
    "rho": "rho", "runs": "runs", "seconds": "seconds", "target": "target", "wait": "wait",
}  # fmt: skip
"""Parameters that are options of commands."""
_VALUE = r"(?=(?:'[^']*'|\[.*?\]|-?(?:[\d.]+(?:e[+-]?\d+)?|inf|nan))(?:[:;,) ]|\.?$|\. ))"
"""What a parameter may be said to be; so that a file called rho=1.csv stays what it is."""
_PHRASES: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"with replan\(\) \(at the prompt: expunge replan\)": "with `expunge replan`",
    r"replan\(expected_records=\.\.\.\)": "`expunge replan --expected-records`",
    r"an estimator: replan\(\), or expected_records at its first fit; your own query: fewer bits per number":
        "`expunge replan --expected-records`",
    r"replan\(\)": "`expunge replan`",
    r"compact\(\)": "`expunge compact`",
    r"write one with model\.save\(path\)": "`expunge fit` makes one",
    r"a file that save\(\) has written": "a file that `expunge fit` has made",
    r"or open it with read_only=True": "or use commands that only read: they may still work",
    r"or open it read_only": "or use commands that only read: they may still work",
    r"open it once without read_only, which updates it": "`expunge verify` updates it",
    r"give a longer wait=(?: when opening)?": "give a longer --wait",
    r"take it from a backup\. If it is lost, nobody can be found in receipts any more: open the store with read_only "
    r"and save\(\) it to another path, which begins new ones":
        "copy it from a backup; it is beside the backup's file. If no copy is left, `expunge predict`, `evaluate`, "
        "`info` and `receipts` still work, but requests do not. For those make a new model with `expunge fit`, from a "
        "table without the people that you have deleted",
    r"Give the receipts that export_receipts\(\) gave last": "Give as --receipts what `expunge receipts -o` wrote last",
    r"what export_receipts\(\) gave last": "as --receipts what `expunge receipts -o` wrote last",
    r"^sign(?:er|_with): ": "--sign-with: ",
    r"sign_with=False": "--unsigned",
    r"make one with make_signing_key": "make one with `expunge keygen`",
    r"make_signing_key makes": "`expunge keygen` makes",
    r"load it with its password and give the key itself": "commands need one without a password, as `expunge keygen` "
        "makes",
    r"^public_key: (expected an Ed25519|the receipts)": r"--public-key: \1",
    r"give public_key": "give --public-key",
    r"give it: open\(path, loss=.*?\(\)\)": "commands cannot be given one, so use this model in Python",
    r"give it as it was given to the model, not fitted: open\(path, structure=.*?\)\)": "commands cannot be given one, "
        "so use this model in Python",
    r"open it with expunge\.federated\.open": "commands are for models; use it in Python, with expunge.federated.open",
    r"\(use subject= to group records\)": '(to group records, declare a column with kind = "subject")',
    r"^X: n_samples=(\d+) is below": r"\1 records are fewer than",
    r'with on_error="skip" \(--on-error skip\)': "with --on-error skip",
    r"fewer n_rounds or n_clusters": "fewer --clusters",
    r"declare a smaller feature_bound for columns of tiny numbers": "declare narrower ranges in the schema",
    r"with feature_bound=\S+ numbers": "with its range in the schema numbers",
    r"Declare a smaller feature_bound for it": "Declare a narrower range for it",
    r"Declare the largest number at the first fit": "Declare the largest number when you fit",
    r"^expected_records: ": "--expected-records: ",
    rf"(?<![\w./'\"-])({'|'.join(_FLAGS)})={_VALUE}": lambda found: f"--{_FLAGS[found[1]]} ",
}  # fmt: skip
"""What is said in Python, as a pattern, and at the prompt; tried in this order."""
_PATTERNS = [(re.compile(python), command) for python, command in _PHRASES.items()]


def at_the_prompt(text: str) -> str:
    """Return a message of the library's as one that fits the prompt.

    >>> at_the_prompt("wait=-1.0: give a number of seconds. Or replan() makes a new plan.")
    '--wait -1.0: give a number of seconds. Or `expunge replan` makes a new plan.'
    """
    for python, command in _PATTERNS:
        text = python.sub(command, text)
    return text
