"""`python -m pagewire`: the same as the command `pagewire`."""

import sys

from pagewire.cli import main

if __name__ == "__main__":
    sys.exit(main())
