"""Divides the ranks of a group between hosts: neighbours share a host, and rank 0 is on host 0."""

from dataclasses import dataclass

from pagewire_shared.errors import StartupError


@dataclass(frozen=True, slots=True)
class HostLayout:
    """Which ranks are on which host; each host has equally many."""

    num_ranks: int
    num_hosts: int

    def __post_init__(self) -> None:
        if self.num_ranks % self.num_hosts:
            raise StartupError(
                f"--rank-hosts: {self.num_ranks} ranks (--tensor-parallel-size times"
                f" --pipeline-parallel-size) cannot be divided between {self.num_hosts} hosts",
                field="rank_hosts",
            )

    @property
    def per_host(self) -> int:
        """Ranks of each host."""
        return self.num_ranks // self.num_hosts

    def ranks_of(self, host: int) -> range:
        """Return the ranks of a host."""
        return range(host * self.per_host, (host + 1) * self.per_host)

    def host_of(self, rank: int) -> int:
        """Return the host of a rank."""
        return rank // self.per_host

    def beside(self, rank: int, host: int) -> int:
        """Return the rank of another host that has the place that `rank` has in its own."""
        return host * self.per_host + rank % self.per_host
