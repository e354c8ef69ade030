"""What pyproject.toml cannot say yet: the native core of the timers, built where a compiler is."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tarry.timers._wheel",
            ["src/tarry/timers/_wheel.c"],
            optional=True,  # without a compiler its twin in Python is used
        )
    ]
)
