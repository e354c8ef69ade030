"""tarry worker: finds the app, serves it, and ends as it is told."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from click.testing import Result

from tarry import Tarry, TaskRef
from tarry.cli.supervisor import Supervisor
from tarry.clock import SYSTEM

Run = Callable[..., Result]
Spawn = Callable[..., subprocess.Popen[str]]
AwaitLine = Callable[..., str]


def page(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


# ---- finding the app


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("shop", "write MODULE:APP"),
        (":app", "write MODULE:APP"),
        ("shop.py:app", "write the module: shop:app"),
        ("nowhere:app", "there is no module 'nowhere'"),
        ("shop.inner:app", "there is no module 'shop.inner'"),
        ("shop:ap", "did you mean shop:app?"),
        ("shop:number", "is int, not a Tarry app"),
        ("shop:empty", "declares no handlers"),
        ("json:app", "it holds no Tarry app"),
    ],
)
def test_an_app_that_cannot_be_found_is_explained(
    run: Run, module: Path, fresh_modules: None, spec: str, words: str
) -> None:
    result = run("worker", spec, code=2)

    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_without_an_app_the_worker_asks_for_one(run: Run) -> None:
    assert "tarry worker shop.tasks:app" in run("worker", code=2).stderr


@pytest.mark.parametrize("line", ["import not_there_at_all", "1 / 0", "raise ValueError('mine')"])
def test_an_error_in_the_users_module_shows_its_traceback(
    run: Run, folder: Path, fresh_modules: None, line: str
) -> None:
    (folder / "broken.py").write_text(f"x = 1\n{line}\n")

    result = run("worker", "broken:app", code=1)

    assert 'broken.py", line 2' in result.stderr
    assert "importlib" not in result.stderr
    assert "importing broken failed" in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--kinds", "order.cancle"], "no handler for order.cancle; the app has order.cancel"),
        (["--concurrency", "0"], "--concurrency"),
        (["--lease", "soon"], "--lease"),
        (["--health-port", "99999"], "--health-port"),
        (["--store", "memory:"], "memory:"),
        (["--lease", "0s"], "--lease"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    run: Run, module: Path, fresh_modules: None, args: list[str], words: str
) -> None:
    assert words in run("worker", "shop:app", *args, code=2).stderr


# ---- one process


def test_a_worker_runs_what_is_due_and_stops_on_sigterm(
    shop: Tarry, module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    shop.schedule("order.cancel", "now", key="42", payload={"order_id": 42})
    worker = spawn("worker", "shop:app", "--log-level", "debug")

    assert await_line(worker.stdout, "cancelled") == "cancelled 42\n"
    await_line(worker.stderr, "done order.cancel/42: attempt 1")
    worker.send_signal(signal.SIGTERM)

    _, err = worker.communicate()
    assert worker.returncode == 0
    assert "stopped after 1 attempts" in err
    assert "Traceback" not in err


def test_a_worker_says_what_it_serves_and_where(
    module: Path, spawn: Spawn, await_line: AwaitLine, folder: Path
) -> None:
    worker = spawn(
        "worker", "shop:app", "--kinds", "order.cancel", "--store", "sqlite:///x.db", "--log-json"
    )

    await_line(worker.stderr, "making a new store")
    banner = await_line(worker.stderr, "tarry worker")
    log = json.loads(await_line(worker.stderr, "serves"))
    worker.send_signal(signal.SIGINT)

    worker.communicate()
    assert "serves order.cancel on sqlite:///x.db (namespace default)" in banner
    assert (log["level"], log["logger"]) == ("info", "tarry")
    assert worker.returncode == 0
    assert (folder / "x.db").exists()
    assert not (folder / "shop.db").exists()


def test_the_environment_names_the_app_the_store_and_the_namespace(
    module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    said = {"TARRY_STORE": "sqlite:///x.db", "TARRY_APP": "shop:app", "TARRY_NAMESPACE": "n"}
    worker = spawn("worker", env={**os.environ, **said})

    await_line(worker.stderr, "note: TARRY_STORE takes the place of the app's own store")
    await_line(worker.stderr, "note: TARRY_NAMESPACE takes the place of")
    await_line(worker.stderr, "on sqlite:///x.db (namespace n)")


def test_the_apps_own_logging_is_left_alone(
    module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    text = "import logging\nlogging.basicConfig(level='INFO', format='MINE %(message)s')\n"
    module.write_text(text + module.read_text())

    worker = spawn("worker", "shop:app")

    assert await_line(worker.stderr, "MINE").startswith("MINE worker ")


def test_a_second_signal_stops_at_once(
    shop: Tarry, module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    module.write_text(
        module.read_text()
        + "\n\n@app.task('slow')\nasync def slow() -> None:\n"
        + "    import asyncio\n    print('begun', flush=True)\n    await asyncio.sleep(600)\n"
    )
    shop.schedule("slow", "now", key="k")
    worker = spawn("worker", "shop:app", "--grace", "10m")
    await_line(worker.stdout, "begun")

    worker.send_signal(signal.SIGTERM)
    # A signal that is still pending is not delivered twice: repeated until it is seen.
    while True:
        try:
            worker.wait(0.2)
            break
        except subprocess.TimeoutExpired:
            worker.send_signal(signal.SIGTERM)

    task = shop.get(TaskRef("slow", "k"))
    assert task is not None
    assert task.attempt == 0


def test_a_worker_that_lost_its_threads_starts_itself_anew(
    shop: Tarry, module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    module.write_text(
        module.read_text()
        + "\n\n@app.task('hang', timeout='50ms')\ndef hang() -> None:\n"
        + "    import threading\n    threading.Event().wait()\n"
    )
    shop.schedule_many(shop.build("hang", "now", key=str(n)) for n in range(10))
    worker = spawn("worker", "shop:app", "--grace", "1s")

    await_line(worker.stderr, "starting anew: 10 handlers outlived")
    await_line(worker.stderr, "tarry worker: shop:app serves")
    again = await_line(worker.stderr, " INFO ")
    worker.send_signal(signal.SIGTERM)

    worker.communicate()
    assert worker.returncode == 0
    assert f":{worker.pid}:" in again


# ---- the health port


def test_the_health_port_answers_probes(
    shop: Tarry, module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    shop.schedule("order.cancel", "now", key="42", payload={"order_id": 42})
    worker = spawn("worker", "shop:app", "--health-port", "0")
    line = await_line(worker.stderr, "health:")
    await_line(worker.stdout, "cancelled 42")
    url = line.split()[1].removesuffix("/livez")

    assert page(f"{url}/livez") == (200, "ok\n")
    assert page(f"{url}/readyz") == (200, "ok\n")
    assert page(f"{url}/nonsense")[0] == 404
    status, text = page(f"{url}/metrics")

    assert status == 200
    assert 'tarry_attempts_total{kind="order.cancel",outcome="done"} 1' in text
    assert 'tarry_lateness_seconds_count{kind="order.cancel"} 1' in text


def test_a_health_port_that_is_taken_is_exit_2(
    module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    first = spawn("worker", "shop:app", "--health-port", "0")
    port = re.findall(r":(\d+)/", await_line(first.stderr, "health:"))[0]

    second = spawn("worker", "shop:app", "--health-port", port)

    _, err = second.communicate()
    assert second.returncode == 2
    assert f"the health port {port} cannot be used" in err
    assert "Traceback" not in err


# ---- several processes


def pid_in(line: str) -> int:
    return int(re.findall(r"pid (\d+)", line)[0])


def test_a_killed_process_is_started_again_and_all_end_together(
    shop: Tarry, module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    crew = spawn("worker", "shop:app", "--processes", "2")
    pids = {pid_in(await_line(crew.stderr, "started (pid")) for _ in range(2)}
    await_line(crew.stderr, " INFO ")
    await_line(crew.stderr, " INFO ")
    victim = min(pids)

    os.kill(victim, signal.SIGKILL)
    await_line(crew.stderr, "was killed by signal 9; starting it again in 1 s")
    successor = pid_in(await_line(crew.stderr, "started (pid"))
    await_line(crew.stderr, " INFO ")
    shop.schedule("order.cancel", "now", key="42", payload={"order_id": 42})
    await_line(crew.stdout, "cancelled 42")
    crew.send_signal(signal.SIGTERM)

    crew.communicate()
    assert crew.returncode == 0
    for pid in {*pids, successor}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_processes_do_not_outlive_their_supervisor(
    module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    crew = spawn("worker", "shop:app", "--processes", "2")
    for _ in range(2):
        await_line(crew.stderr, " INFO ")

    crew.kill()

    # They hold the other end of these pipes: the end of it is their end.
    out, err = crew.communicate()
    assert out == ""
    assert err.count("stopped after 0 attempts") == 2


def test_a_command_line_that_is_wrong_is_not_tried_again(
    module: Path, spawn: Spawn, await_line: AwaitLine
) -> None:
    holder = spawn("worker", "shop:app", "--health-port", "0")
    port = re.findall(r":(\d+)/", await_line(holder.stderr, "health:"))[0]

    crew = spawn("worker", "shop:app", "--processes", "2", "--health-port", port)

    _, err = crew.communicate()
    assert crew.returncode == 2
    assert "cannot be used" in err
    assert "starting it again" not in err


def test_the_pause_grows_with_each_death_and_a_recycled_process_starts_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    crew = Supervisor([["true"]])
    [child] = crew._children
    child.started = SYSTEM.elapsed()

    for _ in range(7):
        crew._ended(child, 1)
    said = capsys.readouterr().err
    crew._ended(child, 75)

    assert re.findall(r"again in (\d+) s", said) == ["1", "2", "4", "8", "16", "30", "30"]
    assert child.again == 0
    assert "anew" in capsys.readouterr().err
