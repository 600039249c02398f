"""A command in an image's files as a cluster runs it: not root, nothing to write to but /tmp."""

import subprocess
from pathlib import Path

from deploy.image_builder import ImageFacts

SHM_BYTES = 64 * 1024**2
"""What container engines give."""

# In a mount namespace of its own, so that nothing of this is seen outside, or outlives the command.
_CONFINE = f"""
root=$1 user=$2
shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/tmp"
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o size={SHM_BYTES} tmpfs "$root/dev/shm"
exec chroot --userspec="$user" "$root" "$@"
"""


def confined(root: Path, facts: ImageFacts, *command: str) -> list[str]:
    """Return the words that run `command` in the image with its environment and as its user."""
    inside = ("env", "-i", f"--chdir={facts.folder}", *facts.environ, *command)
    return ["unshare", "--mount", "sh", "-ec", _CONFINE, "sh", str(root), facts.user, *inside]


def run_confined(
    root: Path, facts: ImageFacts, *command: str
) -> "subprocess.CompletedProcess[str]":
    """Run `command` in the image to its end."""
    words = confined(root, facts, *command)
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


class ImageProcess:
    """A role that runs in its image, by its entry point. Leaves nothing behind.

    Args:
        root: Where the image is mounted.
        log: Gets what it writes.
    """

    def __init__(self, root: Path, facts: ImageFacts, log: Path, *flags: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                confined(root, facts, *facts.entrypoint, *flags),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def stop(self, seconds: float) -> int:
        """Send SIGTERM and return the exit status; kills it, and raises, after `seconds`."""
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once; nothing happens when it is gone."""
        self.process.kill()
        self.process.wait()
