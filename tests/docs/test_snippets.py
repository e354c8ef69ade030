"""Every snippet of the README and of docs/ runs, and prints what the page says."""

from pathlib import Path

import pytest
from tests.docs.conftest import PAGES, Session, blocks, name

RUNS = {"python", "python no-run", "console", "toml"}
SHOWS = {"", "text", "ini", "sh"}
MOST_NOT_RUN = 3

WITH_SNIPPETS = [page for page in PAGES if any(b.language in RUNS for b in blocks(page))]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name)
def test_the_snippets_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runs_console = "tutorial" in page.parts
    with Session(tmp_path, f"page_{page.stem.replace('-', '_')}") as session:
        for block in blocks(page):
            if block.language in {"python", "toml"} and session.save(block.text):
                continue
            if block.info == "python":
                session.run_python(block.text, str(page), block.line)
            elif block.language == "console" and runs_console:
                session.run_console(block.text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_says_what_it_is(page: Path) -> None:
    assert {block.info for block in blocks(page)} <= RUNS | SHOWS


def test_hardly_any_snippet_is_not_run() -> None:
    not_run = [
        f"{name(page)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.info == "python no-run"
    ]

    assert len(not_run) <= MOST_NOT_RUN, not_run
