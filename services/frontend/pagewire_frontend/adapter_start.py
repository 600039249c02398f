"""Makes the adapters of a frontend from its flags, and loads those that the flags name."""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from pagewire_frontend.adapters.allowed_paths import AllowedPaths
from pagewire_frontend.adapters.content_service import served
from pagewire_frontend.adapters.folder_watch import FolderWatch
from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.adapters.store import ContentFolder
from pagewire_frontend.config import FrontendConfig
from pagewire_shared.adapters.flag_values import NamedFolder, parse_modules
from pagewire_shared.errors import PagewireError, StartupError


def make_adapters(
    config: FrontendConfig, models: Sequence[str], taken_names: Iterable[str]
) -> AdapterRegistry:
    """Return the registry, empty still. Raises StartupError."""
    store = None
    if config.enable_lora:
        parent = Path(config.lora_store).expanduser() if config.lora_store else None
        store = ContentFolder(parent, config.lora_store_bytes)
    address = config.lora_address or config.lora_listen
    return AdapterRegistry(store, models=models, taken_names=taken_names, address=address)


def allowed_paths(config: FrontendConfig) -> AllowedPaths:
    """Return where adapters may be loaded from by call. Raises StartupError."""
    modules = parse_modules(config.lora_modules)
    roots = [*config.lora_roots, *([config.lora_dir] if config.lora_dir else [])]
    return AllowedPaths(roots, [module.path for module in modules])


@contextlib.asynccontextmanager
async def serving_adapters(
    config: FrontendConfig, adapters: AdapterRegistry
) -> AsyncIterator[FolderWatch | None]:
    """Load the adapters of the flags, and serve their content while inside; give the watch of
    --lora-dir to run. Raises StartupError naming the adapter at fault."""
    try:
        for module in parse_modules(config.lora_modules):
            await _load(adapters, module)
        watch = None
        if config.lora_dir and adapters.store is not None:
            watch = FolderWatch(config.lora_dir, adapters)
            await watch.look()
        async with served(adapters.store, config.lora_address_to_listen):
            yield watch
    finally:
        if adapters.store is not None:
            adapters.store.close()


async def _load(adapters: AdapterRegistry, module: NamedFolder) -> None:
    # The operator names the folder, whose links may lead anywhere, as those of a hub's cache do.
    root = Path(module.path.anchor)
    try:
        await adapters.load(module.name, module.path, root, base_model=module.base_model)
    except PagewireError as error:
        raise StartupError(
            f"--lora-modules: {module.name}: {error.message}", field="lora_modules"
        ) from error
