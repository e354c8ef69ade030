"""Perform: a whole proof, from the choice of campaigns to the report."""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tarry.errors import ConfigError, StoreUnavailableError
from tarry.testing.proof.campaign import Campaign
from tarry.testing.proof.crew import GUESTS
from tarry.testing.proof.orchestra import Orchestra, Part
from tarry.testing.proof.place import clear, folder_of, lodged, lodging
from tarry.testing.proof.report import Report


class Wish(msgspec.Struct, frozen=True):
    """What somebody wants to have proven."""

    budget_ms: int
    first: int
    """The seed to begin with."""
    processes: int
    store: str | None = None


Watch = Callable[[Orchestra], None]
"""Sees how it goes, about ten times a second."""


def choose(campaigns: Sequence[Campaign], names: Sequence[str]) -> list[Campaign]:
    """Return the campaigns that are called *names*."""
    known = {campaign.name: campaign for campaign in campaigns}
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f"{', '.join(map(repr, unknown))} is" if unknown else "there is"
        message = f"{wrong} no campaign; there are: {', '.join(known)}"
        raise ConfigError(message)
    return [known[name] for name in dict.fromkeys(names)]


def missing(campaigns: Sequence[Campaign], store: str | None) -> dict[str, str]:
    """Return which of *campaigns* cannot be run, and why."""
    if store is not None:
        _refuse(store)
    why = {campaign.name: campaign.unavailable(store or campaign.url) for campaign in campaigns}
    return {name: said for name, said in why.items() if said}


def _refuse(store: str) -> None:
    """Raise if the store cannot be used."""
    folder = folder_of(store)
    if folder is not None and not os.access(folder, os.W_OK):
        message = f"{folder} is no folder that can be written to; nothing was made"
        raise StoreUnavailableError(message)
    with lodging(store) as own, lodged(own):
        pass


def perform(
    campaigns: Sequence[Campaign], wish: Wish, skipped: dict[str, str], watch: Watch
) -> Report:
    """Run *campaigns* until the budget is spent; Ctrl-C ends it, with the report so far."""
    wanted = _controls(campaigns)
    parts = [Part(one, wish.first, wish.store or one.url) for one in campaigns]
    beside = wish.store and folder_of(wish.store)
    folder = Path(tempfile.mkdtemp(prefix="tarry-prove-", dir=beside))
    orchestra = Orchestra(parts, budget_ms=wish.budget_ms, processes=wish.processes, folder=folder)
    interrupted = False
    try:
        orchestra.play(lambda: watch(orchestra))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if wish.store is not None and beside is None:
            clear(wish.store, folder / GUESTS)
        if not any(part.done.broken for part in parts):
            shutil.rmtree(folder, ignore_errors=True)
    return Report(
        parts,
        skipped,
        wanted,
        medium=_medium(campaigns) if wish.store is None else wish.store.partition(":")[0],
        first_seed=wish.first,
        seconds=orchestra.elapsed() / 1e9,
        processes=wish.processes,
        cores=len(os.sched_getaffinity(0)),
        folder=str(folder),
        interrupted=interrupted,
    )


def _medium(campaigns: Sequence[Campaign]) -> str:
    media = {"memory", *(campaign.url.partition(":")[0] for campaign in campaigns)}
    return ", ".join(sorted(media))


def _controls(campaigns: Sequence[Campaign]) -> list[str]:
    """Return the negative controls that *campaigns* must catch: all of them, or none."""
    if all(campaign.name != "controls" for campaign in campaigns):
        return []
    from tarry.testing.proof.ground import controls  # noqa: PLC0415 - stands on the simulation

    return [control.name for control in controls()]
