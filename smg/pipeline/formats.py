"""The formats of each model, found out once (spec parsers 2)."""

from weakref import WeakKeyDictionary

from smg.config.settings import Settings
from smg.fleet.records import ModelRecord
from smg.parsing.choose import Parsers, choose
from smg.text.registry import TextModel


class Formats:
    """Remembers the reasoning and the tool format of models, as long as their text models live.

    A record that control has published anew may have other names, and with them other settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: WeakKeyDictionary[TextModel, dict[str, tuple[ModelRecord, Parsers]]] = WeakKeyDictionary()

    def of(self, model: ModelRecord, text: TextModel) -> Parsers:
        """The formats of ``model``, whose template and vocabulary are ``text``'s."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = {}
        found = known.get(model.id)
        if found is None or found[0] is not model:
            settings = self._settings.of_model(model.id, *model.aliases)
            tokenizer = text.tokenizer
            parsers = choose(
                settings,
                model.id,
                text.source.default,
                tokenizer.token_id,
                tokenizer.added,
                tokenizer.config.get("response_template"),
            )
            found = known[model.id] = model, parsers
        return found[1]
