"""The docs keep their word: links lead somewhere, proofs name tests that exist, and examples run."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_proof_that_the_code_points_to_is_there():
    proofs = {anchor for source in SOURCES for anchor in re.findall(r"docs/guarantee\.md#([\w-]+)", source.read_text())}
    assert len(proofs) >= 6
    assert proofs <= _anchors(ROOT / "docs" / "guarantee.md")


def test_every_test_that_a_proof_names_is_there():
    text = (ROOT / "docs" / "guarantee.md").read_text()
    named = re.findall(r"(tests/[\w/]+\.py)?::(test_\w+)", text)
    assert len(named) >= 20
    file = ""
    for path, name in named:
        file = path or file
        assert f"def {name}(" in (ROOT / file).read_text(), (file, name)


def test_every_name_that_a_proof_gives_is_in_the_code():
    named = re.findall(r"`(expunge\.[\w.]+)`", (ROOT / "docs" / "guarantee.md").read_text())
    assert len(named) >= 30
    for dotted in named:
        assert resolve_name(dotted) is not None


PAPER_ITEMS, PAPER_ERRATA = 117, 57
"""How many items of the paper docs/paper.md lists, and how many errors. Neither becomes smaller."""


def _table_rows(text: str, first: str) -> list[list[str]]:
    """The rows of all tables whose first cell matches, as cells."""
    lines = [line for line in text.splitlines() if re.match(rf"\| {first} \|", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_name_and_test_on_the_page_of_the_paper_is_there():
    text = (ROOT / "docs" / "paper.md").read_text()
    missing = []
    for dotted in sorted(set(re.findall(r"`(expunge\.[\w.]+)`", text))):
        try:
            resolve_name(dotted)
        except (ImportError, AttributeError):
            missing.append(dotted)
    for path, name in sorted(set(re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(test_\w+))?`", text))):
        file = ROOT / path
        if not file.exists() or (name and f"def {name}(" not in file.read_text()):
            missing.append(f"{path}::{name}" if name else path)
    assert not missing, "docs/paper.md names what is not there:\n" + "\n".join(missing)


def test_the_page_of_the_paper_lists_every_item_with_its_code_and_what_shows_it():
    text = (ROOT / "docs" / "paper.md").read_text()
    items, errata = _table_rows(text, r"\d+"), _table_rows(text, r"E\d+")
    assert [int(row[0]) for row in items] == list(range(1, PAPER_ITEMS + 1))
    assert [int(row[0][1:]) for row in errata] == list(range(1, PAPER_ERRATA + 1))
    for number, item, says, code, shown, corrected in items:
        assert item, number
        assert says, number
        assert re.search(r"`(expunge\.|benchmarks/)", code), number
        assert re.search(r"`(tests|benchmarks)/", shown), number
        assert {int(one) for one in re.findall(r"\bE(\d+)", corrected)} <= set(range(1, PAPER_ERRATA + 1)), number
    for number, where, printed, wrong, holds, _ in errata:
        assert all((where, printed, wrong, holds)), number


def test_every_test_of_an_error_of_the_paper_is_on_its_page():
    text = (ROOT / "docs" / "paper.md").read_text()
    files = sorted((ROOT / "tests" / "paper").glob("test_*.py"))
    assert files
    for file in files:
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), flags=re.MULTILINE):
            assert f"`tests/paper/{file.name}::{name}`" in text, name


def test_the_architecture_names_every_module_and_no_other():
    package, text = ROOT / "src" / "expunge", (ROOT / "docs" / "architecture.md").read_text()
    listed = re.search(r"```text\n(__init__\.py .*?)```", text, flags=re.DOTALL)
    assert listed is not None
    lines = [line.split()[0] for line in listed[1].splitlines() if line]
    assert len(lines) == len(set(lines)), "a module appears twice"
    folders = {f"{path.parent.relative_to(package)}/" for path in package.rglob("__init__.py")} - {"./"}
    modules = {str(path.relative_to(package)) for path in package.rglob("*.py")}
    modules = {name for name in modules if name == "__init__.py" or not name.endswith("/__init__.py")}
    assert set(lines) == folders | modules, "docs/architecture.md: add, rename or remove these lines"
    for name in re.findall(r"`([\w/]+\.(?:py|md))`", text):
        assert (package / name).exists() or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_docs_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        assert there.exists(), target
        if anchor:
            assert anchor in _anchors(there), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_example_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), namespace)


def test_every_benchmark_and_make_target_is_documented():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    scripts = [path for path in (ROOT / "benchmarks").rglob("*.py") if "def main" in path.read_text()]
    assert scripts
    for script in scripts:
        assert str(script.relative_to(ROOT)) in text
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {"help", "demo", "test", "test-all"} <= set(targets)
