"""What the tests of the documents share: the blocks and links of a page, and a reader's session."""

import ast
import asyncio
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple, Self

from tarry import Tarry

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)$")
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?P<target>[^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block; `line` is that of its first line of content, from 1."""

    info: str
    text: str
    line: int

    @property
    def language(self) -> str:
        return self.info.split(" ")[0]


def blocks(page: Path) -> Iterator[Block]:
    info: str | None = None
    start, content = 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence is None:
            content.append(line)
        elif info is None:
            info, start, content = fence["info"].strip(), number + 1, []
        else:
            yield Block(info, "\n".join(content) + "\n", start)
            info = None
    assert info is None, f"{page}: the block before line {start} is not closed"


def links(page: Path) -> list[str]:
    """Return the targets of all links outside fenced blocks."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [found["target"] for found in _LINK.finditer(prose)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.+?) *$", prose, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


_FILE = re.compile(r"# (?P<name>[\w./-]+\.(?:py|toml))\n")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?Z?")
_DURATION = re.compile(r"\b(?:\d+(?:w|d|h|ms|m|s))+\b|\b\d+\.\d+ ?m?s\b")
_REVISION = re.compile(r"\brevision +\d+|\b\d{4,}\b")
LIMIT_SECONDS = 30


class Session:
    """A reader: a folder, a Python session and a terminal.

    A Python block shares its names with the blocks before it. One that begins with the name of a
    file is saved as that file. `$ tarry worker …` goes on in the background until the end.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._module = ModuleType(name)
        self._runner: asyncio.Runner | None = None
        self._background: list[subprocess.Popen[str]] = []
        self._environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TARRY_")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def __enter__(self) -> Self:
        sys.modules[self._module.__name__] = self._module
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._background:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT_SECONDS)
            code = process.returncode
            assert kind is not None or code == 0, f"{process.args!r} ended with {code}"
        for module in [self._module, *self._saved()]:
            for value in vars(module).values():
                if isinstance(value, Tarry):
                    value.close()
            sys.modules.pop(module.__name__)
        if self._runner is not None:
            self._runner.close()

    def _saved(self) -> list[ModuleType]:
        """Return the modules that were imported from the reader's folder."""
        return [
            module
            for module in list(sys.modules.values())
            if str(getattr(module, "__file__", None)).startswith(str(self.folder))
        ]

    def save(self, text: str) -> bool:
        """Save a block that names a file; say whether it does."""
        named = _FILE.match(text)
        if named is None:
            return False
        path = self.folder / named["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return True

    def run_python(self, text: str, page: str, line: int) -> None:
        """Run a block; a traceback names its line in the page."""
        code = compile("\n" * (line - 1) + text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if not code.co_flags & inspect.CO_COROUTINE:
            exec(code, vars(self._module))
            return
        if self._runner is None:
            self._runner = asyncio.Runner()
        self._runner.run(eval(code, vars(self._module)))

    def run_console(self, text: str) -> None:
        """Run the commands of a block, and compare what they print with what the page shows."""
        command, shown = "", list[str]()
        for line in [*text.splitlines(), "$ "]:
            if line.startswith("$ "):
                if command:
                    self._run(command, shown)
                command, shown = line.removeprefix("$ "), []
            else:
                shown.append(line)

    def _run(self, command: str, shown: list[str]) -> None:
        words = shlex.split(command, comments=True)
        if words[:2] == ["tarry", "worker"]:
            self._start(words)
            return
        done = subprocess.run(
            words,
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        if shown:
            assert comparable(done.stdout) == comparable("\n".join(shown)), f"$ {command}"

    def _start(self, words: list[str]) -> None:
        """Start a worker and wait until it says that it serves."""
        process = subprocess.Popen(
            words, cwd=self.folder, env=self._environ, stderr=subprocess.PIPE, text=True
        )
        self._background.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if " serves " in line:
                return
        raise AssertionError(f"{words} ended with {process.wait()}")


def comparable(text: str) -> list[str]:
    """Return output without what differs from run to run: instants, durations, revisions."""
    text = _INSTANT.sub("<instant>", text)
    text = _DURATION.sub("<duration>", text)
    text = _REVISION.sub("<revision>", text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]
