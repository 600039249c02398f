"""Profiles one rank of a worker: phases and layers of its steps, and what torch computes."""

import base64
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from pagewire_shared.errors import InternalError, PagewireError
from pagewire_worker.inspection.step_clock import StepClock
from pagewire_worker.inspection.torch_trace import TorchTrace
from pagewire_worker.inspection.trace import encode_events
from pagewire_worker.kv.layer_watch import LayerCalls

PIECE_BYTES: Final = 45 * 1024
"""Of a fragment in one reply of a rank, which has it in base64."""

_logger = logging.getLogger(__name__)


class RankProfile:
    """The profile of one rank; its methods run in the model thread.

    Args:
        name: Of the process, in the trace.
        follow: Has the steps followed by a clock; by none for None.
        layers: Called for each layer; None for a rank without a cache.
        uses_torch: Whether the model is computed by torch, and not by kernels of our own.

    Attributes:
        on_full: Called in the model thread when a profile has the steps that it is to have.
    """

    def __init__(
        self,
        *,
        name: str,
        follow: Callable[[StepClock | None], None],
        layers: LayerCalls | None,
        device: torch.device,
        uses_torch: bool,
    ) -> None:
        self.on_full: Callable[[], None] | None = None
        self._name = name
        self._follow = follow
        self._layers = layers
        self._device = device
        self._uses_torch = uses_torch
        self._clock: StepClock | None = None
        self._torch: TorchTrace | None = None
        self._fragment: bytes | None = None
        self._error = ""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """What rank 0 calls in every rank."""
        return {
            "start_profile": self.start,
            "stop_profile": self.stop,
            "profile_size": self.size,
            "read_profile": self.read,
            "drop_profile": self.drop,
        }

    def start(self, most_steps: int) -> None:
        """Begin; what an earlier profile has left is dropped."""
        self.drop()
        self._clock = StepClock(most_steps, self.on_full)
        if self._uses_torch:
            self._torch = TorchTrace(self._device)
            self._torch.begin()
        if self._layers is not None:
            # On CUDA a step that takes layers one by one is not that of a captured graph.
            self._layers.profile(self._clock.layer, is_timed=self._device.type == "cpu")
        self._follow(self._clock)

    def stop(self) -> None:
        """End, and begin to encode what there is in a thread of its own."""
        clock, recorded = self._clock, self._torch
        self._detach()
        if clock is None:
            return
        self._fragment, self._error = None, ""
        encode = threading.Thread(
            target=self._encode, args=(clock, recorded), name="trace", daemon=True
        )
        encode.start()

    def size(self) -> int | None:
        """Return the bytes of the fragment; None while it is made.

        Raises:
            InternalError: It cannot be made.
        """
        if self._error:
            raise InternalError(self._error)
        return None if self._fragment is None else len(self._fragment)

    @property
    def fragment(self) -> bytes:
        """What was made, once it has a size."""
        assert self._fragment is not None, "the fragment is not there yet"
        return self._fragment

    def read(self, offset: int) -> str:
        """Return the next piece of the fragment, in base64."""
        return base64.b64encode(self.fragment[offset : offset + PIECE_BYTES]).decode()

    def drop(self) -> None:
        """Forget everything."""
        self._detach()
        self._fragment, self._error = None, ""

    def so_far(self) -> bytes:
        """Return the phases and layers of a profile that runs, as a fragment. From any thread."""
        clock = self._clock
        events = [] if clock is None else clock.events()
        return encode_events(events, os.getpid(), self._name)

    def _detach(self) -> None:
        if self._clock is None:
            return
        self._clock = None
        self._follow(None)
        if self._layers is not None:
            self._layers.profile(None)
        recorded, self._torch = self._torch, None
        if recorded is not None:
            recorded.end()

    def _encode(self, clock: StepClock, recorded: TorchTrace | None) -> None:
        try:
            others = [] if recorded is None else recorded.events()
            self._fragment = encode_events(clock.events(), os.getpid(), self._name, others)
        except PagewireError as error:
            self._error = error.message
        except Exception as error:
            _logger.exception("the trace cannot be made")
            self._error = f"the trace cannot be made: {type(error).__name__}: {error}"
