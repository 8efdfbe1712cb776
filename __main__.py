"""Lets ``python -m collopt`` do what ``collopt`` does."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
