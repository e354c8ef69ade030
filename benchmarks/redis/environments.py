"""Where the peers are installed: each alone, at fixed versions, under the cache folder."""

import shutil
import subprocess
from pathlib import Path

import above  # noqa: F401 - for the next imports
import measure
from peers import cache_of, environment

_REDIS = ("redis==8.1.0", "hiredis==3.5.0")
PINS: dict[str, tuple[str, ...]] = {
    "huey": ("huey==3.5.4", *_REDIS),
    "apscheduler": ("apscheduler==3.11.3", *_REDIS),
    "celery": ("celery==5.7.0", "kombu==5.7.0", "packaging==25.0", *_REDIS),
    "arq": ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0", "uvloop==0.23.0"),
    "saq": (
        *("saq==0.26.4", "redis==7.4.1", "hiredis==3.5.0", "uvloop==0.23.0"),
        "typing-extensions==4.15.0",
    ),
    "dramatiq": ("dramatiq==2.2.1", *_REDIS),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", *_REDIS, "uvloop==0.23.0"),
    "rq": ("rq==2.12.0", *_REDIS),
}
NODE_PINS = ("bullmq@6.7.0", "ioredis@5.11.1")


def python_of(name: str, report: measure.Report) -> Path | None:
    """Return a Python that has the peer *name*, None if it cannot be installed."""
    try:
        return environment(f"redis-{name}", PINS[name], report)
    except (OSError, subprocess.CalledProcessError) as error:
        report.note(f"NOT INSTALLED: {name}: {error}")
        return None


def node_folder(report: measure.Report) -> Path | None:
    """Return a folder whose node_modules has BullMQ, None if it cannot be installed."""
    folder = cache_of("redis-bullmq", NODE_PINS)
    if (folder / "complete").exists():
        return folder
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        report.note("NOT INSTALLED: bullmq: there is no node")
        return None
    report.note(f"installing {', '.join(NODE_PINS)} into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        words = [npm, "install", "--silent", "--prefix", str(folder), *NODE_PINS]
        subprocess.run(words, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        report.note(f"NOT INSTALLED: bullmq: {error}")
        return None
    (folder / "complete").touch()
    return folder
