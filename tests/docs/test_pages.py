"""The pages of the project: their length, the width of their lines, and one page for each package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.corpora import REPOSITORY

WIDEST = 120
PAGES = sorted(
    path
    for below in ("*.md", "docs/*.md", "benchmarks/*.md", "fixtures/*.md", "klog/*/README.md")
    for path in REPOSITORY.glob(below)
)
PACKAGES = sorted(path.parent for path in (REPOSITORY / "klog").glob("*/__init__.py"))


def _prose(page: Path) -> list[str]:
    """The lines of a page but its tables and code, which cannot be broken."""
    outside = re.sub(
        r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return [line for line in outside.splitlines() if not line.lstrip().startswith("|")]


@pytest.mark.parametrize(("page", "most"), [("ARCHITECTURE.md", 1400), ("README.md", 1700)])
def test_the_first_pages_that_people_read_are_short(page: str, most: int) -> None:
    assert len((REPOSITORY / page).read_text(encoding="utf-8").split()) <= most


def test_no_line_of_prose_is_too_wide() -> None:
    wide = [
        f"{page.relative_to(REPOSITORY)}: {line}"
        for page in PAGES
        for line in _prose(page)
        if len(line) > WIDEST
    ]
    assert wide == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_each_package_has_a_page_that_the_architecture_names(package: Path) -> None:
    assert (package / "README.md").read_text(encoding="utf-8").startswith(f"# klog.{package.name}\n")
    assert f"(klog/{package.name}/README.md)" in (REPOSITORY / "ARCHITECTURE.md").read_text(encoding="utf-8")
