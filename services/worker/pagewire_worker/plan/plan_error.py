"""The error of a plan that cannot be run."""


class PlanError(ValueError):
    """A plan contradicts the worker's state; names the slots at fault when they are known."""

    def __init__(self, message: str, culprit_slots: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.culprit_slots = culprit_slots
