"""The docs keep their word: links lead somewhere, proofs name tests that exist, and examples run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
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
    code = "\n".join(source.read_text() for source in SOURCES)
    for dotted in re.findall(r"`expunge\.([\w.]+)`", (ROOT / "docs" / "guarantee.md").read_text()):
        last = dotted.split(".")[-1]
        module = (ROOT / "src" / "expunge" / f"{last}.py").exists()
        assert module or re.search(rf"(def|class) {last}\b", code), dotted


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
