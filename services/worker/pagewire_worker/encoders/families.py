"""The table of encoders: architectures and the modules that read their config.json."""

from collections.abc import Callable, Mapping
from typing import Any

from pagewire_worker.encoders.bert import read_bert, read_roberta
from pagewire_worker.encoders.modernbert import read_modernbert
from pagewire_worker.encoders.spec import EncoderSpec

FAMILIES: Mapping[str, Callable[[Mapping[str, Any], str], EncoderSpec]] = {
    f"{name}{kind}": read
    for name, read in (
        ("Bert", read_bert),
        ("Roberta", read_roberta),
        ("XLMRoberta", read_roberta),
        ("ModernBert", read_modernbert),
    )
    for kind in ("Model", "ForSequenceClassification")
}


def encoder_spec(data: Mapping[str, Any]) -> EncoderSpec | None:
    """Return the encoder in the content of a config.json; None for other models.

    Raises StartupError naming the first field at fault.
    """
    for name in data.get("architectures") or []:
        if name in FAMILIES:
            return FAMILIES[name](data, name)
    return None
