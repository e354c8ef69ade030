"""Herd on Redis: a great many tasks due within one second, while a second kind goes on.

The same program as the one for a file: see herd.py in the folder above.
"""

import above  # noqa: F401 - for the next imports
import herd
import measure
from redis_server import serving


def main() -> None:
    options = herd.read_options(__doc__)
    report = measure.Report(options)
    with serving(options) as server:
        options.store = server.url
        herd.run(options, report)
    report.show()


if __name__ == "__main__":
    main()
