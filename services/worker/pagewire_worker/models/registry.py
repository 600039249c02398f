"""Reads the config.json of native models. models/variants.py says which decoder computes each."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pagewire_shared.model_files.config import read_config
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.families.registry import FAMILIES, NESTED
from pagewire_worker.models.forms import CheckpointForm, form_of


def read_plan(folder: Path) -> ModelPlan:
    """Return the plan of the checkpoint in `folder`. Raises StartupError naming the fault."""
    return native_plan(read_config(folder))


def native_plan(data: Mapping[str, Any]) -> ModelPlan:
    """Return the plan in the content of a config.json.

    Raises:
        UnsupportedModelError: The native decoder does not compute this model.
        StartupError: The content is broken.
    """
    form = native_form(data)
    nested = NESTED.get(form.architecture)
    fields = data if nested is None else nested.text_data(data)
    plan = replace(FAMILIES[form.family].read(fields), architecture=form.family)
    if form.has_logits:
        return plan
    # Without a matrix for logits, that of the embeddings stands in its place, unused.
    return replace(plan, logits=replace(plan.logits, name=None))


def native_form(data: Mapping[str, Any]) -> CheckpointForm:
    """Return the form of a native model.

    Raises:
        UnsupportedModelError: The architecture has no native decoder.
        StartupError: The text model of a nested one is missing, or not of a family.
    """
    form = form_of(data, tuple(FAMILIES))
    if form is not None:
        return form
    names = data.get("architectures") or []
    for nested in (NESTED[name] for name in names if name in NESTED):
        return CheckpointForm(
            nested.architecture, nested.family(data), names=nested.tensor_names(data)
        )
    shown = ", ".join(map(str, names)) if names else "none"
    raise UnsupportedModelError(
        f"config.json: architecture {shown} is not supported, only {', '.join(FAMILIES | NESTED)}",
        field="model",
    )
