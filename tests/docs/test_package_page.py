"""What the package index shows: the README with links that work there, and the project's addresses."""

from __future__ import annotations

import importlib.metadata
import re

from tests.corpora import REPOSITORY

METADATA = importlib.metadata.metadata("klog")
LINK = re.compile(r"\]\(([^)]+)\)")


def addresses() -> dict[str, str]:
    return dict(entry.split(", ", 1) for entry in METADATA.get_all("Project-URL") or ())


def description() -> str:
    text = METADATA["Description"] or METADATA.get_payload()
    assert isinstance(text, str)
    return text


def test_the_project_has_addresses() -> None:
    assert {"Homepage", "Source", "Documentation", "Changelog", "Issues"} <= set(addresses())


def test_every_link_of_the_readme_is_absolute_and_its_page_exists() -> None:
    base = f"{addresses()['Source']}/blob/main/"
    links = LINK.findall(description())
    assert len(links) > 10
    for link in links:
        assert link.startswith(("https://", "#")), link
        if link.startswith(base):
            page = link.removeprefix(base).partition("#")[0]
            assert (REPOSITORY / page).exists(), link


def test_the_links_of_the_readme_itself_are_relative_so_that_they_work_in_a_clone() -> None:
    links = LINK.findall((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert not [link for link in links if link.startswith(addresses()["Source"])]


def test_only_extras_need_the_large_packages() -> None:
    needed = [one for one in METADATA.get_all("Requires-Dist") or () if "extra ==" not in one]
    names = {re.split(r"[^\w-]", one, maxsplit=1)[0] for one in needed}
    assert not names & {"pyarrow", "kafka-python", "pyspark"}
    assert {"pyarrow", "pyspark"} <= {
        re.split(r"[^\w-]", one, maxsplit=1)[0] for one in METADATA.get_all("Requires-Dist") or ()
    }
