"""Report: what a proof tried and what it found, in Markdown and as data."""

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tarry.testing.proof.campaign import Caught
from tarry.testing.proof.orchestra import Part
from tarry.testing.proof.tally import Broken
from tarry.version import __version__

_SHOWN = 50
"""So many violations are written out: what is wrong is wrong by then."""
_TOTALS = {
    "histories": "simulation",
    "model_histories": "model",
    "kills": "kills",
    "stalls": "stalls",
    "server_kills": "server-kills",
    "power_cuts": "power-cuts",
    "syscalls": "system-calls",
}
"""The names of the numbers in JSON, and whose they are."""
_ESSENTIAL = ("controls", "simulation")
"""Without these campaigns nothing is proven, whatever the others find."""
_URL_NOTE = "In these commands URL stands for the store's, which may hold a password: put it in."


class Violation(msgspec.Struct, frozen=True):
    """A promise that was not kept, and which campaign says so."""

    campaign: str
    rule: str
    said: str
    replay: str


class Report(msgspec.Struct):
    """What a proof tried and what it found."""

    parts: Sequence[Part]
    skipped: Mapping[str, str]
    """The campaigns that could not be run, and why."""
    wanted: Sequence[str]
    """The negative controls that must be caught."""
    medium: str
    first_seed: int
    seconds: float
    processes: int
    cores: int
    folder: str = ""
    """The folder of the proof: nobody's business."""
    interrupted: bool = False

    @property
    def violations(self) -> list[Violation]:
        """Every promise that was not kept."""
        return [
            Violation(part.campaign.name, one.rule, self._without_paths(one), one.replay)
            for part in self.parts
            for one in part.done.broken
        ]

    def _without_paths(self, broken: Broken) -> str:
        return broken.said.replace(f"{self.folder}/", "") if self.folder else broken.said

    @property
    def note(self) -> str:
        """What must be known to use the commands that replay violations; may be empty."""
        unnamed = any("--store URL" in one.replay for one in self.violations)
        return _URL_NOTE if unnamed else ""

    @property
    def controls(self) -> dict[str, Caught | None]:
        """The negative controls and what caught them; None got away, or was not reached."""
        return dict(sorted((dict.fromkeys(self.wanted) | self._hunted).items()))

    @property
    def _hunted(self) -> dict[str, Caught | None]:
        hunted: dict[str, Caught | None] = {}
        for part in self.parts:
            hunted |= part.done.caught
        return hunted

    @property
    def gaps(self) -> dict[str, str]:
        """What was skipped and leaves nothing proven, and why."""
        return {name: self.skipped[name] for name in _ESSENTIAL if name in self.skipped}

    def is_clean(self) -> bool:
        """Say whether nothing was violated, nothing essential skipped, every control caught."""
        return not self.violations and not self.gaps and None not in self.controls.values()

    def verdict(self) -> str:
        """Say in one line what came out."""
        hunted = self._hunted
        got_away = sum(caught is None for caught in hunted.values())
        unreached = sum(name not in hunted for name in self.controls)
        found = [_number(len(self.violations), "violation")]
        if got_away:
            found.append(f"{_number(got_away, 'control')} not caught")
        if unreached:
            found.append(f"{_number(unreached, 'control')} not reached")
        if self.skipped:
            found.append(f"{_number(len(self.skipped), 'campaign')} skipped")
        tried = ", ".join(counted(part) for part in self.parts)
        return f"{', '.join(found)}: {tried or 'nothing'} in {self.seconds:.0f} s"

    def data(self) -> dict[str, Any]:
        """Return everything as `--json` prints it."""
        done = {part.campaign.name: part.done for part in self.parts}
        totals = {
            name: done[campaign].tried if campaign in done else 0
            for name, campaign in _TOTALS.items()
        }
        return {
            **totals,
            "violations": self.violations,
            "controls": {name: one and one.seed for name, one in self.controls.items()},
            "rules": {name: one and one.rule for name, one in self.controls.items()},
            "counts": {name: slice_.counts for name, slice_ in done.items()},
            "skipped": self.skipped,
            "seconds": round(self.seconds, 3),
            "first_seed": self.first_seed,
            "interrupted": self.interrupted,
            "store": self.medium,
            "processes": self.processes,
            "cores": self.cores,
            "python": platform.python_version(),
            "tarry": __version__,
        }

    def markdown(self) -> str:
        """Return everything as a page."""
        return "\n".join([*self._head(), *self._campaigns(), *self._found(), *self._caught()])

    def _head(self) -> Iterator[str]:
        yield "# Proof"
        yield ""
        yield f"**{self.verdict()}**{' (interrupted)' if self.interrupted else ''}"
        yield ""
        yield (
            f"tarry {__version__}, Python {platform.python_version()}, {self.cores} cores, "
            f"{self.processes} processes; store: {self.medium}; seeds from {self.first_seed} on."
        )

    def _campaigns(self) -> Iterator[str]:
        yield from ("", "## Tried", "")
        yield "| campaign | tried | in a second of one process | violations |"
        yield "|---|---:|---:|---:|"
        for part in self.parts:
            rate = part.done.tried / (part.spent / 1e9) if part.spent else 0
            broken = len(part.done.broken)
            yield _row(part.campaign.name, counted(part), f"{rate:,.1f}", f"{broken:,}")
        for name, why in self.skipped.items():
            yield _row(name, f"skipped: {why}", "", "")
        yield ""
        for part in self.parts:
            counts = [f"{name} {count:,}" for name, count in sorted(part.done.counts.items())]
            if counts:
                yield f"- {part.campaign.name}: {', '.join(counts)}"

    def _found(self) -> Iterator[str]:
        violations = self.violations
        yield from ("", "## Violations", "")
        if not violations:
            yield "None."
        for one in violations[:_SHOWN]:
            yield f"- **{one.rule}** ({one.campaign}): {' '.join(one.said.split())}"
            yield f"  `{one.replay}`" if one.replay else "  (chance: it cannot be replayed)"
        if len(violations) > _SHOWN:
            yield f"- … and {len(violations) - _SHOWN:,} more"
        if self.note:
            yield from ("", self.note)

    def _caught(self) -> Iterator[str]:
        if not self.controls:
            return
        yield from ("", "## Negative controls", "")
        yield "Each met the histories of the simulation, from seed 0 on, until it was caught."
        yield ""
        yield "| control | caught by the rule | at seed | replay |"
        yield "|---|---|---:|---|"
        hunted = self._hunted
        for name, one in self.controls.items():
            if one is None:
                yield _row(name, "**not caught**" if name in hunted else "not reached", "", "")
            else:
                replay = f"`tarry prove --control {name} --seed {one.seed}`"
                yield _row(name, one.rule, str(one.seed), replay)


def counted(part: Part) -> str:
    """Return how much of a campaign was done: "1,200 histories"."""
    return f"{part.done.tried:,} {part.campaign.unit}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
