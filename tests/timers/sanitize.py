"""Runs the tests of the native core under AddressSanitizer and UBSan.

By hand, after every change of `_wheel.c`; takes a minute or two:

    .venv/bin/python tests/timers/sanitize.py [arguments of pytest]

A use after free, an access beyond an array or an overflow in the core ends the run. The core
is built into a temporary folder, and put in the place of the installed one.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src" / "tarry" / "timers" / "_wheel.c"
FLAGS = [
    *("-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror"),
    *("-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-shared", "-fPIC"),
]
PRELOAD = """
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
name = "tarry.timers._wheel"
spec = spec_from_file_location(name, {path!r}, loader=ExtensionFileLoader(name, {path!r}))
sys.modules[name] = module = module_from_spec(spec)
spec.loader.exec_module(module)
"""
TESTS = ["test_agreement.py", "test_promises.py", "test_native.py"]


def main() -> int:
    with TemporaryDirectory() as folder:
        core = Path(folder) / "_wheel.so"
        include = sysconfig.get_paths()["include"]
        subprocess.run(["gcc", *FLAGS, f"-I{include}", SOURCE, "-o", core], check=True)
        # Read by the interpreter at its start, and by those that tests start.
        Path(folder, "sitecustomize.py").write_text(PRELOAD.format(path=str(core)))
        asan = subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
        )
        environ = {
            **os.environ,
            "LD_PRELOAD": asan.stdout.strip(),
            # Python itself keeps memory until its end: leaks are what the tests count.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": folder,
            "TARRY_TIMERS": "native",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        asked = sys.argv[1:]
        tests = [HERE / name for name in TESTS]
        return subprocess.call(
            [*command, *tests, "-k", "not hashed and not heap and not million", *asked], env=environ
        )


if __name__ == "__main__":
    sys.exit(main())
