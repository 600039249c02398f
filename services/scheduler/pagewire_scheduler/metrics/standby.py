"""Shows whether this scheduler is active."""

from prometheus_client import Gauge

from pagewire_scheduler.peers.standby import CellRole

_ACTIVE = Gauge("pagewire_scheduler_active", "1 while this scheduler is active, 0 on standby")


def show_role(role: CellRole) -> None:
    """Show the role of this scheduler."""
    _ACTIVE.set(role is CellRole.ACTIVE)
