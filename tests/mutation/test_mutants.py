"""Mutants are made as intended, a sample of them is killed, and the tool itself can fail."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutation import mutate
from tests.mutation.operators import Mutant, mutants


def changes(source: str) -> list[str]:
    return [mutant.change for mutant in mutants(source, "planted.py")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["a < b → a <= b"]),
        ("x = a is not b", ["a is not b → a is b"]),
        ("x = a and b", ["a and b → a or b", "a and b → b", "a and b → a"]),
        ("x = not a", ["not a → a"]),
        ("x = a - b", ["a - b → a + b"]),
        ("x = 7", ["7 → 8", "7 → 6"]),
        ("x = True", ["True → False"]),
        ("x = 'a'", ["'a' → 'XXa'"]),
        ("x = max(a, b)", ["max(a, b) → min(a, b)", "max(a, b) → max(a)"]),
        ("x = replace(y, due=z)", ["replace(y, due=z) → replace(due=z)", "due=z → nothing"]),
        ("x = [a for a in b if c(a)]", ["c(a) → c()", "c(a) → not c(a)", "c(a) → nothing"]),
        ("def f():\n    return x", ["return x → return None"]),
        ("def f(x=1): ...", ["1 → 2", "1 → 0"]),
        ("def f():\n    self.x = y", ["self.x = y → pass"]),
        ("def f():\n    if x:\n        y = z", ["x → not x", "y = z → pass"]),
        ("def f():\n    x += y", ["x += y → x -= y", "x += y → pass"]),
        ("for x in y:\n    break", ["break → continue"]),
        (
            "try:\n    f()\nexcept (A, B):\n    raise",
            ["f() → pass", "(A, B) → (B,)", "(A, B) → (A,)", "raise → pass"],
        ),
        (
            "match x:\n    case A() | B():\n        pass",
            ["case A() | B() → nothing", "A() | B() → B()", "A() | B() → A()"],
        ),
    ],
)
def test_what_is_changed(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring of 7 words."""',
        "def f(x: 'int' = y) -> Literal[7]: ...",
        "class A(B, gc=False): ...",
        "@cache(maxsize=9)\ndef f(): ...",
        "message = f'not {x}'",
        "A = TypeVar('A')",
        "Due = At | In",
        "match x:\n    case _:\n        assert_never(x)",
        "import a, b",
    ],
)
def test_what_is_promised_to_nobody_is_left_alone(source: str) -> None:
    assert changes(source) == []


def test_a_mutant_runs_as_it_reads_and_leaves_the_others_alone() -> None:
    found = mutants("def f(x):\n    return x + 1", "planted.py")

    results = {}
    for mutant in found:
        names: dict[str, object] = {}
        exec(mutant.code(), names)
        function = names["f"]
        assert callable(function)
        results[mutant.change] = function(5)

    assert results == {
        "return x + 1 → return None": None,
        "x + 1 → x - 1": 4,
        "1 → 2": 7,
        "1 → 0": 5,
    }


def test_equal_changes_in_one_function_have_names_of_their_own() -> None:
    found = mutants("def f():\n    return x < y, x < y", "planted.py")

    assert [mutant.where for mutant in found[1:]] == ["f", "f #2"]


# ---- judging

PATH = mutate.ROOT / "src/tarry/life.py"
ONE, TWO = (
    Mutant(line, "f", change, lambda: compile("", "", "exec"))
    for line, change in [(1, "a → b"), (2, "b → c")]
)


def judged(alive: list[Mutant], known: dict[mutate.Key, str]) -> int:
    return mutate.judge("life", alive, [ONE, TWO], [ONE, TWO], known, PATH)


def test_a_survivor_must_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged([ONE], {}) == 1
    assert capsys.readouterr().out == "src/tarry/life.py:1 f: a → b\n"

    assert judged([ONE], {("life", "f", "a → b"): "the same"}) == 0


def test_an_explanation_that_is_no_longer_needed_must_go() -> None:
    assert judged([], {("life", "f", "a → b"): "killed by now"}) == 1
    assert judged([], {("life", "g", "x → y"): "not even there"}) == 1
    assert judged([], {("due", "f", "a → b"): "another module"}) == 0


def test_every_explanation_says_why() -> None:
    known = mutate.explanations()

    assert {module for module, _, _ in known} <= mutate.TARGETS.keys()
    assert all(len(why) > 20 for why in known.values())


# ---- the tool as a whole


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.mutation.mutate", *options],
        cwd=mutate.ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_sample_of_the_state_machine_is_killed() -> None:
    done = run("--module", "life", "--sample", "40", "--seed", "1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "life: 40 mutants" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_tests_that_look_at_nothing_let_mutants_live(tmp_path: Path) -> None:
    blind = tmp_path / "test_blind.py"
    blind.write_text("import tarry.life\n\ndef test_nothing(): ...\n")

    done = run("--module", "life", "--sample", "5", "--tests", str(blind))

    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("src/tarry/life.py:") > 0


def test_tests_that_fail_anyway_say_nothing_about_mutants(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("def test_nothing(): assert False\n")

    done = run("--module", "life", "--sample", "5", "--tests", str(broken))

    assert done.returncode == 1
    assert "do not pass on tarry.life as it is" in done.stderr
