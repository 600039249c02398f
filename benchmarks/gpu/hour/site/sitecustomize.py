"""Puts carried packages behind those of this Python, in every process that an item starts: so a
machine's own torch and numpy stay, and only what it lacks comes from elsewhere."""

import os
import sys

sys.path += [path for path in os.environ.get("PAGEWIRE_PACKAGES", "").split(os.pathsep) if path]
