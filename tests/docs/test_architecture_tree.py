"""The tree in ARCHITECTURE.md is made from the docstrings of the modules.

After a change of modules, write it anew with:  python tests/docs/test_architecture_tree.py
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tarry"
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- the tree, made from docstrings by tests/docs/test_architecture_tree.py -->\n```\n"
END = "```\n<!-- end of the tree -->\n"
COLUMN = 26
MOST_LINES = 300
ONE_LINE = {
    "cli",
    "stores/mysql",
    "stores/sql",
    "testing/conformance",
    "testing/controls",
    "testing/proof",
    "testing/proxy",
}


def first_line(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def tree(folder: Path, depth: int = 1) -> Iterator[str]:
    """Yield a line for each module, then for each folder and what is in it."""
    inside = sorted(folder.iterdir())
    for path in inside:
        if path.suffix == ".py" and path.stem != "__init__":
            yield entry(path.name, first_line(path), depth)
    for path in inside:
        if (path / "__init__.py").exists():
            yield entry(f"{path.name}/", first_line(path / "__init__.py"), depth)
            if path.relative_to(SOURCE).as_posix() not in ONE_LINE:
                yield from tree(path, depth + 1)


def entry(name: str, line: str, depth: int) -> str:
    return f"{'  ' * depth + name:<{COLUMN}} {line}\n"


def whole() -> str:
    head = entry("src/tarry/", first_line(SOURCE / "__init__.py"), 0)
    return head + "".join(tree(SOURCE))


def written() -> str:
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def rewrite() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + whole() + END + after, encoding="utf-8")


def test_the_tree_is_up_to_date() -> None:
    assert written() == whole(), "run: python tests/docs/test_architecture_tree.py"


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) < MOST_LINES


if __name__ == "__main__":
    rewrite()
