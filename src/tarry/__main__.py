"""`python -m tarry` is `tarry`."""

from tarry.cli.main import main

if __name__ == "__main__":
    main()
