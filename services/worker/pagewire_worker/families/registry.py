"""The registry of families; models/variants.py says which decoder computes each."""

from collections.abc import Mapping
from types import ModuleType
from typing import Final

from pagewire_worker.families import (
    deepseek,
    gemma,
    glm,
    glm_moe,
    gpt_oss,
    granite,
    llama,
    mistral,
    mixtral,
    olmo2,
    olmoe,
    phi3,
    qwen,
    qwen_moe,
    smollm3,
    starcoder2,
)
from pagewire_worker.families.nested import NestedFamily
from pagewire_worker.families.parts import Family

MODULES: Final[tuple[ModuleType, ...]] = (
    llama,
    mistral,
    qwen,
    gemma,
    phi3,
    smollm3,
    granite,
    glm,
    olmo2,
    starcoder2,
    mixtral,
    qwen_moe,
    olmoe,
    glm_moe,
    deepseek,
    gpt_oss,
)
"""A new family is a module here."""

FAMILIES: Final[dict[str, Family]] = {
    family.architecture: family for module in MODULES for family in module.FAMILIES
}
"""Families by the name of their architecture in config.json."""

NESTED: Final[dict[str, NestedFamily]] = {
    nested.architecture: nested for module in MODULES for nested in getattr(module, "NESTED", ())
}
"""Architectures with a text model of a family, by their name in config.json."""

GGUF: Final[Mapping[tuple[str, bool], str]] = {
    (name, family.has_experts): family.architecture
    for family in FAMILIES.values()
    for name in family.gguf
}
"""`general.architecture` of GGUF files and whether they have experts, to that of config.json."""
