"""Who was served how much: newcomers stand behind nobody, and names at rest are forgotten."""

from unit.scheduler.cell import Cell

from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.queueing.tenant_queue import TenantLedger
from pagewire_shared.sampling.params import SamplingParams


def test_a_newcomer_is_lifted_to_the_least_of_those_who_wait() -> None:
    ledger = TenantLedger({})
    ledger.enter("patient")
    ledger.charge("patient", 1_000)
    ledger.enter("busy")
    ledger.charge("busy", 1_000_000)
    ledger.leave("busy")
    ledger.enter("new")
    assert ledger.served("new") == ledger.served("patient") == 1_000


def test_who_comes_back_to_an_idle_cell_has_saved_nothing_up() -> None:
    ledger = TenantLedger({})
    for tenant in ("early", "late"):
        ledger.enter(tenant)
        ledger.leave(tenant)
    ledger.charge("late", 500)
    ledger.enter("late")
    ledger.leave("late")
    ledger.enter("early")
    assert ledger.served("early") == 500


def test_any_number_of_tenants_comes_and_goes() -> None:
    cell = Cell(settings=CoreSettings(generation=3, policy="fair"))
    for number in range(1_200):
        cell.submit(
            number % 250 + 1,
            [1, 2, 3],
            tenant=f"tenant {number}",
            sampling=SamplingParams(max_tokens=1),
        )
        cell.answer(cell.planned())
    assert not cell.core.requests
