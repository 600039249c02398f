"""A table of grammars over the slots of a worker, driven as an executor drives it."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import torch

from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.loading.loader import make_grammars
from pagewire_worker.sampling.grammar_bitmask import apply_masks
from support.cells.worker_driver import GREEDY
from support.source_tree import ROOT

MODEL = ROOT / "pagewire" / "builtin_model"
VOCAB = 3072
EOS = 2
NUM_SLOTS = 32
PROMPT = [40, 41, 42]
MOST_WAITS = 100


@dataclass
class Bench:
    """A table of grammars over slots, as an executor drives it."""

    vocab: int = VOCAB
    slots: SlotTable = field(init=False)

    def __post_init__(self):
        limits = SlotLimits(
            num_slots=NUM_SLOTS,
            num_blocks=64,
            block_size=16,
            max_model_len=1024,
            vocab_size=self.vocab,
        )
        self.slots = SlotTable(limits, torch.device("cpu"))
        grammars = make_grammars(ModelFiles.of_folder(MODEL), self.vocab)
        self.compiler, self.table = grammars.compiler, grammars.table

    def compile(self, params):
        asyncio.run(self.compiler.compile(params.digest, params))
        return params.digest

    def install(self, slot, grammar_id, emitted=(), tenant=""):
        request = NewSequence(
            slot=slot,
            request_id=bytes([slot]) * 16,
            choice=0,
            prompt_token_ids=PROMPT,
            emitted_token_ids=emitted,
            sampling=GREEDY,
            block_ids=[0, 1],
            grammar_id=grammar_id,
            tenant=tenant,
        )
        self.slots.install(request, 0)
        self.table.install(request)

    def free(self, *slots):
        for slot in slots:
            self.slots.free(slot)
            self.table.free(slot)

    def positions(self, slots):
        return self.slots.num_tokens[slots] - self.slots.prompt_lens[slots]

    def begin(self, slots):
        slots = np.asarray(slots, dtype=np.int64)
        return self.table.begin(slots, self.positions(slots), self.slots)

    def masks(self, slots):
        return self.begin(slots)()

    def allowed(self, slot):
        bits = self.masks([slot]).bits.view(np.uint8)
        return set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())

    def write(self, slots, tokens):
        """Let sequences grow as a step does that goes through."""
        slots, tokens = np.asarray(slots, dtype=np.int64), np.asarray(tokens, dtype=np.int64)
        self.slots.write_sampled(slots, self.slots.num_tokens[slots], torch.from_numpy(tokens))
        self.table.accept(slots, tokens)
        self.slots.commit(slots, self.slots.num_tokens[slots], slots)

    def step(self, slots, generator, is_masked=True):
        """Run a step with random logits and return a token per slot.

        On a busy machine a mask may be late; then the step waits for it.
        """
        masks = self.masks(slots)
        for _ in range(MOST_WAITS):
            if masks is None or len(masks.late) == 0:
                break
            masks = self.masks(slots)
        logits = torch.randn((len(slots), self.vocab), generator=generator) * 4
        if is_masked and masks is not None:
            apply_masks(logits, masks)
        tokens = logits.argmax(dim=1).numpy()
        if is_masked:
            self.write(slots, tokens)
        return tokens.tolist()

    def output(self, slot):
        begin, end = int(self.slots.prompt_lens[slot]), int(self.slots.num_tokens[slot])
        return self.slots.tokens[slot, begin:end].tolist()

    def ids(self, text):
        return self.compiler.tokenizer.tokenize_str(text)
