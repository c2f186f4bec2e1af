"""TextRegistry: the tokenizers and templates of the models in service, each loaded once, in a thread."""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from smg.config.settings import ModelSettings, TokenizerCacheSettings, of_model
from smg.core import clock
from smg.core.errors import GatewayError
from smg.core.stream import Decoder
from smg.fleet.records import ModelRecord
from smg.text.chat import Chat
from smg.text.encode import CachedEncoder, CacheSizes
from smg.text.mapped.folder import Folder
from smg.text.memory import give_back
from smg.text.native.table import find_native
from smg.text.template_source import TemplateSource, find_template
from smg.text.tokenizer import Tokenizer, TokenizerError

log = logging.getLogger("smg.text")


class TextModel:
    """The text side of a model: tokenizer, chat templates and what was found out about them.

    ``encoder`` encodes as ``tokenizer`` does and remembers. A template that does not compile is reported when somebody
    chats; prompts still work. A decoder that cannot stream is reported when somebody generates; ids can still be had.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | str | Path,
        chat_template: str | None = None,
        sizes: CacheSizes | None = None,
        content: str = "auto",
    ) -> None:
        """Take a tokenizer, or load one from a directory; ``chat_template`` is a file that wins over the model's own.

        ``content``: see ``Chat``.

        Raises:
            TokenizerError: files are missing or broken.
        """
        self.tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer(tokenizer)
        directory = self.tokenizer.directory
        self.source: TemplateSource = find_template(directory, self.tokenizer.config, chat_template)
        native = None if chat_template is not None else find_native(self.tokenizer.model_config)
        if native is not None and native.render is not None:
            self.source = TemplateSource(native.render("").source)
        self._native, self._content = native, content
        template = (self.source.default or "") + (self.source.tool_use or "")
        self.encoder = CachedEncoder(self.tokenizer, self.tokenizer.literals, sizes, template)
        self._default = self._chat(self.source.default)
        self._tool_use = self._chat(self.source.tool_use)
        self._decoder: Decoder | None = None
        self._decoder_error = ""
        try:
            self._decoder = self.tokenizer.decoder
        except TokenizerError as error:
            self._decoder_error = str(error)
            log.warning("the model can't generate text: %s", error, extra={"directory": str(directory)})

    @property
    def decodes(self) -> bool:
        """Whether generated ids can be turned into text."""
        return self._decoder is not None

    @property
    def decoder(self) -> Decoder:
        """Id to bytes.

        Raises:
            GatewayError: ``not_implemented`` (501) when ids of this model cannot be decoded one by one.
        """
        if self._decoder is None:
            message = "this model can't generate text: its tokenizer's decoder is not supported"
            raise GatewayError("not_implemented", message, detail=self._decoder_error)
        return self._decoder

    def _chat(self, source: str | None) -> Chat | GatewayError | None:
        try:
            return None if source is None else Chat(source, self.tokenizer, self._native, self._content)
        except GatewayError as error:
            return error

    def chat(self, tools: bool = False) -> Chat:
        """The template for requests with or without ``tools``.

        Raises:
            GatewayError: ``process_messages_failed`` when the model has no template, or a broken one.
        """
        chosen = self._tool_use if tools and self._tool_use is not None else self._default
        if chosen is None:
            raise GatewayError("process_messages_failed", "the model has no chat template")
        if isinstance(chosen, GatewayError):
            raise GatewayError(chosen.code, chosen.message)
        return chosen


class _Key(NamedTuple):
    """What a text model is made of: a tokenizer's key, and the operator's template file and form of contents."""

    tokenizer: str
    template: str | None
    content: str


class _Tokenizers:
    """The tokenizers in use, by key, each loaded once however many models share it; mapped where ``folder`` has it."""

    def __init__(self, folder: Folder | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loads: dict[str, threading.Lock] = {}
        self._loaded: dict[str, Tokenizer] = {}

    def get(self, key: str, directory: str) -> Tokenizer:
        """Return the tokenizer, loading it when nobody has. Blocking; raises TokenizerError."""
        with self._lock:
            load = self._loads.setdefault(key, threading.Lock())
        with load:
            found = self._loaded.get(key)
            if found is None:
                found = self._loaded[key] = self._load(key, directory)
            return found

    def _load(self, key: str, directory: str) -> Tokenizer:
        mapped = None if self._folder is None else self._folder.open(key)
        tokenizer = Tokenizer(directory, mapped)
        if mapped is None or mapped.tables is None:
            give_back()
        return tokenizer

    def keep(self, keys: Iterable[str]) -> None:
        """Forget all but ``keys``."""
        wanted = set(keys)
        with self._lock:
            self._loads = {key: lock for key, lock in self._loads.items() if key in wanted}
            self._loaded = {key: found for key, found in self._loaded.items() if key in wanted}


# A load that failed is tried again after this long: its files may have come back.
RETRY_SECS = 5.0


class _Entry:
    """One load, running or done, and the record it was started for."""

    def __init__(self, record: ModelRecord, future: Future[TextModel]) -> None:
        self.record = record
        self.future = future
        self._begun = clock.monotonic()

    def stale(self, record: ModelRecord) -> bool:
        """Whether to try again for ``record``."""
        return self.failed() and (self.record != record or clock.monotonic() - self._begun >= RETRY_SECS)

    def failed(self) -> bool:
        return self.future.done() and (self.future.cancelled() or self.future.exception() is not None)

    def loaded(self) -> bool:
        return self.future.done() and not self.failed()


class TextRegistry:
    """Text models by tokenizer key and template, one registry per process.

    Models with the same files share their tokenizer, and all else when their template is used alike. Methods never
    block and may be called from any thread.
    """

    def __init__(
        self,
        settings: ModelSettings,
        cache: TokenizerCacheSettings = TokenizerCacheSettings(),  # noqa: B008 - frozen
        models: Mapping[str, ModelSettings] = MappingProxyType({}),
        folder: Folder | None = None,
    ) -> None:
        """``settings`` are those of all models, ``models`` those of single ones; ``folder`` has prepared tokenizers."""
        self._settings = settings
        self._models = models
        self._sizes = CacheSizes(
            exact_entries=cache.l0_max_entries,
            exact_bytes=cache.l0_max_memory if cache.enable_l0 else 0,
            prefix_bytes=cache.l1_max_memory if cache.enable_l1 else 0,
        )
        self._entries: dict[_Key, _Entry] = {}
        self._known: dict[str, tuple[ModelRecord, TextModel]] = {}
        self._tokenizers = _Tokenizers(folder)
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="smg-tokenizer")

    def ensure(self, record: ModelRecord) -> "Future[TextModel] | None":
        """Start loading what ``record`` needs, unless that runs, is done, or has just failed for this very record.

        Returns the load, or None while the record has no files yet.
        """
        if not record.tokenizer_dir:
            return None
        with self._lock:
            key = self._key(record)
            entry = self._entries.get(key)
            if entry is None or entry.stale(record):
                future = self._threads.submit(self._load, key, record.tokenizer_dir)
                future.add_done_callback(lambda done: _report(record, done))
                entry = self._entries[key] = _Entry(record, future)
            return entry.future

    def _load(self, key: _Key, directory: str) -> TextModel:
        return TextModel(self._tokenizers.get(key.tokenizer, directory), key.template, self._sizes, key.content)

    def _key(self, record: ModelRecord) -> _Key:
        settings = of_model(self._settings, self._models, record.id, *record.aliases)
        return _Key(
            record.tokenizer_key or record.tokenizer_dir,
            record.chat_template or settings.chat_template,
            settings.chat_template_content_format or "auto",
        )

    def ready(self, record: ModelRecord) -> bool:
        """Whether ``get`` would return a model."""
        entry = self._entries.get(self._key(record))
        return entry is not None and entry.loaded()

    def known(self, record: ModelRecord) -> TextModel | None:
        """The loaded model, if ``get`` has returned it for this very object before; costs next to nothing."""
        found = self._known.get(record.id)
        return found[1] if found is not None and found[0] is record else None

    def get(self, record: ModelRecord) -> TextModel:
        """Return the loaded model; starts the load when nobody has.

        Raises:
            GatewayError: ``tokenizer_not_ready`` (503) while it loads or is still to be fetched, and after a failure.
        """
        future = self.ensure(record)
        if future is None:
            reason = record.tokenizer_error and "it could not be fetched"
            raise _not_ready(record, reason or "it has not been fetched yet", record.tokenizer_error)
        if not future.done():
            raise _not_ready(record, "it is being loaded")
        error = future.exception()
        if error is not None:
            # The error names files of this machine, which are for the log.
            raise _not_ready(record, "it could not be loaded", str(error) or repr(error))
        text = future.result()
        self._known[record.id] = record, text
        return text

    def encoders(self) -> dict[str, CachedEncoder]:
        """The encoders of the loaded models by the beginning of their tokenizer's key (12 characters).

        Of models that share a tokenizer but not their template, the second has ``-2`` behind it, and so on.
        """
        with self._lock:
            entries = list(self._entries.items())
        out: dict[str, CachedEncoder] = {}
        counts: Counter[str] = Counter()
        for key, entry in entries:
            if entry.loaded():
                name = key.tokenizer[:12]
                counts[name] += 1
                out[name if counts[name] == 1 else f"{name}-{counts[name]}"] = entry.future.result().encoder
        return out

    def prune(self, records: Iterable[ModelRecord]) -> None:
        """Forget what none of ``records`` needs any more."""
        self._known = {}
        wanted = {self._key(record) for record in records}
        with self._lock:
            self._entries = {key: entry for key, entry in self._entries.items() if key in wanted}
        self._tokenizers.keep(key.tokenizer for key in wanted)

    def close(self) -> None:
        """Let no more loads start."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _report(record: ModelRecord, done: Future[TextModel]) -> None:
    """Log a load that failed: requests only learn that there is no tokenizer."""
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("the tokenizer could not be loaded", extra={"model": record.id, "error": str(error) or repr(error)})


def _not_ready(record: ModelRecord, reason: str, detail: str = "") -> GatewayError:
    message = f"the tokenizer of model '{record.id}' is not ready: {reason}"
    return GatewayError("tokenizer_not_ready", message, detail=detail)
