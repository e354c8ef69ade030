"""What a power cut leaves of recorded steps: pure, a disk that may forget whatever was not synced.

Since its last sync each 512-byte sector of a file may have reached the disk in any of the states it
has had, independently of its neighbours, so that writes are torn, reordered and dropped. A file's
size is as uncertain: a truncation may be forgotten, an extension may have become durable without
what was written into it (then it reads as zeros). Names of files come and go in order, as a
journaling file system keeps them, but without a sync of the folder any number of the last changes
is forgotten: a new file may be gone, a deleted one back.

After a sync that failed the system takes for clean what it may never have written: no later sync
makes it durable, unless it is written once more. Sizes are not forgotten that way: they are the
file system's own.

Not modelled: disks that lie about a sync, sectors that turn to garbage or change without having
been written, and a cache that drops what it takes for clean before the power is cut.
"""

import random
from collections.abc import Mapping
from itertools import pairwise

from tarry.testing.proof.vfs import Step

SECTOR = 512


class _File:
    """A file's durable content, and the changes since."""

    def __init__(self, content: bytes = b"") -> None:
        self.durable = bytearray(content)
        self.pending: list[Step] = []
        self.dropped: list[Step] = []
        """Sector by sector, what was written before a failed sync and not again since."""

    def sync(self) -> None:
        written = [part for step in self.pending for part in _sectors(step)]
        dirty = {_sector(part) for part in written}
        steps, self.dropped = self.dropped + written, []
        for step in steps:
            if step.what == "truncate":
                self.dropped = [part for part in self.dropped if part.offset < step.offset]
            elif _sector(step) not in dirty:
                self.dropped.append(step)
                continue
            _apply(self.durable, step)
        self.pending.clear()

    def fail(self) -> None:
        self.dropped += [part for step in self.pending for part in _sectors(step)]
        self.pending.clear()


class Disk:
    """Files that follow recorded steps; `cut` tells what they would be after a power cut."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._durable = {name: _File(content) for name, content in files.items()}
        self._files = dict(self._durable)
        self._renamed: list[tuple[str, _File | None]] = []
        """Names that have come (with their file) or gone (None) since the last sync."""

    def take(self, step: Step) -> None:
        """Follow one step."""
        match step.what:
            case "create":
                self._name(step.name, _File())
            case "delete":
                self._name(step.name, None)
            case "sync":
                self._files[step.name].sync()
            case "failed sync":
                self._files[step.name].fail()
            case _:
                self._files[step.name].pending.append(step)
        if step.folder:
            _rename(self._durable, self._renamed)
            self._renamed.clear()

    def _name(self, name: str, file: _File | None) -> None:
        self._renamed.append((name, file))
        _rename(self._files, [(name, file)])

    def cached(self) -> dict[str, bytes]:
        """Return the files as they are while the power is on."""
        return {name: _cached(file) for name, file in self._files.items()}

    def cut(self, chance: random.Random) -> tuple[dict[str, bytes], int]:
        """Return the files after a power cut, and how many sectors were (partly) forgotten."""
        keep = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        files = dict(self._durable)
        _rename(files, self._renamed[: chance.randint(0, len(self._renamed))])
        image, forgotten = {}, 0
        for name, file in files.items():
            image[name], dropped = _survived(file, keep, chance)
            forgotten += dropped
        return image, forgotten


def _cached(file: _File) -> bytes:
    content = bytearray(file.durable)
    for step in file.dropped + file.pending:
        _apply(content, step)
    return bytes(content)


def _survived(file: _File, keep: float, chance: random.Random) -> tuple[bytes, int]:
    content = bytearray(file.durable)
    steps = file.dropped + file.pending
    fates: dict[int, int] = {}
    """How many of the steps each sector has seen; -1 is the file's size."""

    def reached(number: int, sector: int) -> bool:
        if sector not in fates:
            kept = chance.random() < keep
            fates[sector] = len(steps) if kept else chance.randrange(len(steps))
        return number < fates[sector]

    for number, step in enumerate(steps):
        if step.what == "truncate":
            if reached(number, -1):
                _apply(content, step)
            continue
        for part in _sectors(step):
            if reached(number, _sector(part)):
                _apply(content, part)
            elif reached(number, -1):
                _extend(content, part.offset + len(part.data))
    return bytes(content), sum(fate < len(steps) for fate in fates.values())


def _sector(part: Step) -> int:
    return part.offset // SECTOR


def _sectors(step: Step) -> list[Step]:
    """Cut a write at the sectors' borders."""
    if step.what == "truncate":
        return [step]
    start, end = step.offset, step.offset + len(step.data)
    borders = [start, *range((start // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return [
        step._replace(offset=low, data=step.data[low - start : high - start])
        for low, high in pairwise(borders)
    ]


def _apply(content: bytearray, step: Step) -> None:
    end = step.offset + len(step.data)
    if step.what == "truncate":
        del content[end:]
    _extend(content, end)
    content[step.offset : end] = step.data


def _extend(content: bytearray, size: int) -> None:
    content.extend(bytes(max(0, size - len(content))))


def _rename(files: dict[str, _File], changes: list[tuple[str, _File | None]]) -> None:
    for name, file in changes:
        if file is None:
            files.pop(name, None)
        else:
            files[name] = file
