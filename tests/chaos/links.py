"""Links between the processes of a local deployment, each of which can be cut, slowed and
damaged."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from pagewire.local.cluster import LocalCluster
from pagewire.local.layout import ChildSpec

PROGRAM = Path(__file__).with_name("link_process.py")
LISTENS = ("--listen", "--peer-listen", "--grpc-listen")


class Links:
    """A process with all links; `weave` puts them into a deployment that has not started."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._paths: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """Names of links, as "worker-0>scheduler"; those to a KV store are one, "all>kvstore"."""
        return list(self._paths)

    def weave(self, cluster: LocalCluster) -> None:
        """Let each process reach the others by links of its own."""
        folder, plan = cluster._folder.path, cluster._plan

        def woven() -> tuple[ChildSpec, ...]:
            return tuple(self._woven(spec, folder) for spec in plan())

        # It is asked again once the ports are known.
        cluster._plan = woven  # type: ignore[method-assign]
        cluster._specs = {spec.name: spec for spec in woven()}

    def _woven(self, spec: ChildSpec, folder: Path) -> ChildSpec:
        words = list(spec.arguments)
        for index, word in enumerate(words):
            if f"unix:{folder}/" in word and words[index - 1] not in LISTENS:
                words[index] = self._linked(spec.name, word, folder)
        return replace(spec, arguments=tuple(words))

    def _linked(self, source: str, word: str, folder: Path) -> str:
        """Return a flag's value with links in the place of sockets."""
        parts = word.split("+")
        for index, part in enumerate(parts):
            prefix, _, path = part.rpartition("unix:")
            target = Path(path).name.removesuffix(".sock")
            if target == source:
                continue
            # A store is known to all by one address.
            name = f"all>{target}" if target == "kvstore" else f"{source}>{target}"
            if name not in self._paths:
                self._paths[name] = str(folder / f"link{len(self._paths)}.sock")
                self._order({"add": [name, self._paths[name], path]})
            parts[index] = f"{prefix}unix:{self._paths[name]}"
        return "+".join(parts)

    def set(self, name: str, mode: str, value: float = 0.0) -> None:
        """Do to a link what a mode of link_process.py says."""
        self._order({"set": name, "mode": mode, "value": value})

    def _order(self, order: object) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        assert stdout.readline() == "done\n"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
