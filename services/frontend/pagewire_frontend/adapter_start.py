"""Makes the adapters of a frontend from its flags, and loads those that the flags name."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from pagewire_frontend.adapters.allowed_paths import AllowedPaths
from pagewire_frontend.adapters.content_service import served
from pagewire_frontend.adapters.folder_watch import FolderWatch
from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.adapters.store import ContentFolder
from pagewire_frontend.adapters.store_client import AdapterStoreWriter
from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.metrics.adapters import note_write
from pagewire_shared.adapters.flag_values import NamedFolder, parse_modules
from pagewire_shared.errors import PagewireError, StartupError

_logger = logging.getLogger(__name__)


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
    """Load the adapters of the flags, and serve their content and write it to KV stores while
    inside; give the watch of --lora-dir to run.

    Raises:
        StartupError: An adapter is at fault; it names it.
    """
    try:
        for module in parse_modules(config.lora_modules):
            await _load(adapters, module)
        watch = None
        if config.lora_dir and adapters.store is not None:
            watch = FolderWatch(config.lora_dir, adapters)
            await watch.look()
        async with (
            served(adapters.store, config.lora_address_to_listen),
            _writing(config, adapters),
        ):
            yield watch
    finally:
        if adapters.store is not None:
            adapters.store.close()


@contextlib.asynccontextmanager
async def _writing(config: FrontendConfig, adapters: AdapterRegistry) -> AsyncIterator[None]:
    """Write the content of adapters to the KV stores while inside."""
    if adapters.store is None:
        if config.kvstore:
            _logger.info("--kvstore is for adapters: it does nothing without --enable-lora")
        yield
        return
    writers = [AdapterStoreWriter(store, adapters, note_write) for store in config.kvstore]

    def offer(adapter_id: bytes) -> None:
        for writer in writers:
            writer.offer(adapter_id)

    adapters.on_content = offer
    tasks = [asyncio.create_task(writer.run()) for writer in writers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _load(adapters: AdapterRegistry, module: NamedFolder) -> None:
    # The operator names the folder, whose links may lead anywhere, as those of a hub's cache do.
    root = Path(module.path.anchor)
    try:
        await adapters.load(module.name, module.path, root, base_model=module.base_model)
    except PagewireError as error:
        raise StartupError(
            f"--lora-modules: {module.name}: {error.message}", field="lora_modules"
        ) from error
