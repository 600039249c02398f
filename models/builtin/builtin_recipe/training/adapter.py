"""Training of the low-rank adapter on the exported network; the network itself stays as it is."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from tokenizers import Tokenizer
from tqdm import tqdm

from builtin_recipe.conversation import make_conversation
from builtin_recipe.evaluation.teacher_forcing import score_chat
from builtin_recipe.model.chat_tokenizer import encode_conversation
from builtin_recipe.model.lora import add_adapters
from builtin_recipe.model.network import Decoder
from builtin_recipe.skills.yaml_lines import draw_adapter_conversation, yaml_exchanges
from builtin_recipe.training.batches import Packer
from builtin_recipe.training.loop import rate_factor
from builtin_recipe.wording import Draw

NUM_STEPS: Final = 400
_RATE: Final = 3e-3
_NUM_TOKENS_PER_STEP: Final = 3072
_ROW_LENGTH: Final = 256


def train_adapter(
    network: Decoder, tokenizer: Tokenizer, num_steps: int, seed: int, report: Callable[[str], None]
) -> None:
    """Put adapters on `network`, which holds the exported values in float32, and train them."""
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(add_adapters(network), lr=_RATE, weight_decay=0.0)
    for step in tqdm(range(num_steps), desc="adapter", disable=None):
        rng = random.Random(f"adapter {seed} {step}")
        packer = Packer(tokenizer, partial(draw_adapter_conversation, rng))
        batch = packer.pack(_NUM_TOKENS_PER_STEP, _ROW_LENGTH)
        with torch.autocast("cpu", torch.bfloat16):
            loss, accuracy = network.loss_and_accuracy(batch.ids, batch.labels)
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = _RATE * rate_factor(step, step / num_steps)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 50 == 0:
            report(f"step {step + 1}  loss {loss.item():.3f}  accuracy {accuracy.item():.3f}")


def adapter_share(network: Decoder, tokenizer: Tokenizer, is_held_out: bool, count: int) -> float:
    """Return the share of unseen JSON requests that the adapted network answers with lines."""
    draw = Draw(random.Random(f"adapter {is_held_out}"), is_held_out=is_held_out)
    chats = [make_conversation(yaml_exchanges(draw)) for _ in range(count)]
    encoded = [encode_conversation(tokenizer, chat) for chat in chats]
    return sum(score_chat(network, *one)[-1] for one in encoded) / count
