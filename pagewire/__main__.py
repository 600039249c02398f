"""`python -m pagewire`: the same as the command `pagewire`. Owns nothing."""

import sys

from pagewire.cli import main

if __name__ == "__main__":
    sys.exit(main())
