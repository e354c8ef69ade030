"""tarry's side of the comparison on Redis, as it comes."""

from pathlib import Path

import above  # noqa: F401 - for the next imports
import side
from side_tarry import AppSide


class TarrySide(AppSide):
    """An app on the server whose port stands in the folder."""

    def __init__(self, folder: Path, mark: side.Mark) -> None:
        super().__init__(f"redis://127.0.0.1:{(folder / 'port').read_text()}", mark)


if __name__ == "__main__":
    side.main(TarrySide)
