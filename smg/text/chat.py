"""Chat: one chat template with all that is known about it, and the way from a request to a prompt."""

import json
import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from smg.core.errors import GatewayError, bad_request
from smg.core.request import Constraint, GenerationRequest, Message, ToolChoice
from smg.text import call_format, content_format, messages, system_roles, thinking, tool_place
from smg.text.media import unmark
from smg.text.native.table import Native
from smg.text.shield import reveal
from smg.text.template import PROTECT, Template, compile_template
from smg.text.tokenizer import Tokenizer

_DOCUMENTS = re.compile(r"\bdocuments\b")
TAIL = 256  # characters of the prompt that parsers are shown
# Behind the text that is continued while the template runs; it never stays in a prompt. As the shield's joiner.
_CUT = "=~" + "".join(str(secrets.randbelow(10)) for _ in range(32)) + "~="


class Rendered(msgspec.Struct, frozen=True):
    """A prompt, still with the shield's joiners (``Tokenizer.encode`` drops them).

    ``tail`` is the end of what the template rendered and ``history`` the continued assistant text after it, both
    without joiners. ``thinking`` is the resolved toggle, None when the template has none.
    """

    prompt: str
    tail: str
    history: str
    thinking: bool | None


class Chat:
    """``source`` compiled and probed; ``tokenizer`` gives the special tokens and the shield.

    ``shows_tools`` tells whether the model sees the tools of a request.
    """

    def __init__(self, source: str, tokenizer: Tokenizer, native: Native | None = None, content: str = "auto") -> None:
        """Compile and probe; ``native`` is what the model has beside ``source``, or in its stead.

        ``content`` is how the template wants contents, if the operator says so (``content_format.FORCED``).

        Raises:
            GatewayError: ``process_messages_failed`` when ``source`` is no valid Jinja.
        """
        self._special = tokenizer.specials.context()
        renderer = native.render if native is not None else None
        joiner = tokenizer.shield.joiner
        self.template: Template = compile_template(source) if renderer is None else renderer(joiner)
        self._shield = tokenizer.shield.over(self.template.controls)
        self._complete = native.complete if native is not None else None
        self._continues = native is None or native.continues
        forced = content_format.FORCED.get(content) if renderer is None else None
        contents = forced or content_format.detect(self.template, self._special)
        self.forms = messages.Forms(contents, call_format.detect(self.template, self._special))
        self.roles = system_roles.detect(self.template, self._special)
        self.toggle = thinking.detect(self.template, self._special)
        self.shows_tools = self._complete is not None or tool_place.detect(self.template, self._special)

    def render(self, request: GenerationRequest) -> Rendered:
        """Render the messages of ``request``.

        Raises:
            GatewayError: 400: what the template refused, or a message it has no form for.
        """
        if request.template_kwargs.get("documents") and not _DOCUMENTS.search(self.template.source):
            raise GatewayError(
                "unsupported_parameter", "this model's prompt has no place for documents", param="documents"
            )
        turns, last = _split_continued(request)
        if last is not None and not self._continues and thinking.resolve(self.toggle, request):
            message = "this model cannot continue an answer while it thinks: turn thinking off"
            raise bad_request(message, "continue_final_message")
        prompt, history = self._render_turns(turns, request), ""
        if last is not None:
            written = self._written(turns, last, request, prompt) if self._continues else None
            prompt, history = written or (prompt, self._history(prompt, last, len(request.messages) - 1))
        tail = reveal(prompt)[-TAIL:]
        return Rendered(prompt + history, tail, reveal(history), thinking.resolve(self.toggle, request))

    def _written(
        self, turns: Sequence[Message], last: Message, request: GenerationRequest, opened: str
    ) -> tuple[str, str] | None:
        """Render ``last`` as the template writes an answer and cut behind its text: (what precedes the text, the text).

        None where that does not work: there is no text, the template changes it, or it leaves out a system text (some
        show them only in a last user message) or the reasoning. ``opened`` is the prompt for an answer still to come.
        """
        index = len(turns)
        text = messages.content_text(last, f"messages[{index}].content")
        reasoning = messages.reasoning_text(last)
        if not text:
            return None
        marked = msgspec.structs.replace(last, content=text + _CUT)
        try:
            whole = self._render_turns([*turns, marked], request, answered=True)
        except GatewayError:
            return None
        shown, cut, _ = whole.rpartition(_CUT)
        systems = [messages.content_text(turn, "messages") for turn in turns if turn.role in system_roles.ROLES]
        before = reveal(shown)
        lost = bool(reasoning) and before.count(reasoning.strip()) <= reveal(opened).count(reasoning.strip())
        if not cut or lost or any(system.strip() not in before for system in systems):
            return None
        for form in (text, text.lstrip()):
            shielded = self._shield.protect_text(form)
            if shown.endswith(shielded):
                return shown.removesuffix(shielded), shielded
        return None

    def _render_turns(self, turns: Sequence[Message], request: GenerationRequest, *, answered: bool = False) -> str:
        """Render ``turns``, with a generation prompt unless the last one is the answer itself."""
        if not self.roles.developer:
            turns = system_roles.rename_developer(turns)
        late = system_roles.has_late(turns)
        if late and not self.roles.late:
            return self._render(system_roles.merge_into_first(turns), request, answered)
        try:
            return self._render(turns, request, answered)
        except GatewayError as error:
            if not late or error.code != "process_messages_failed":
                raise
            return self._render(system_roles.merge_into_first(turns), request, answered)

    def _render(self, turns: Sequence[Message], request: GenerationRequest, answered: bool) -> str:
        protect = self._shield.protect
        context: dict[str, Any] = {
            **self._special,
            "messages": protect(messages.to_dicts(turns, self._forms_of(request))),
            "add_generation_prompt": not answered,
        }
        if request.constraint is not None:
            context |= protect(_response_format(request.constraint))
        if request.reasoning_effort is not None:
            context["reasoning_effort"] = protect(request.reasoning_effort)
        if request.tools:
            context["tools"] = protect(messages.tools_to_dicts(request.tools, request.tool_choice.names))
            context["tool_choice"] = protect(_tool_choice(request.tool_choice))
        if self.toggle is not None:
            wanted = thinking.wish(self.toggle, request)
            if wanted is not None:
                context[self.toggle.key] = wanted
        if request.template_kwargs:
            context |= protect(request.template_kwargs)
        context[PROTECT] = protect
        if self._complete is not None:
            self._complete(context)
        return self._shield.settle(unmark(self.template.render(context), request.placeholders))

    def _forms_of(self, request: GenerationRequest) -> messages.Forms:
        if not request.placeholders:
            return self.forms
        return msgspec.structs.replace(self.forms, placeholders=request.placeholders)

    def _history(self, prompt: str, last: Message, index: int) -> str:
        """The text to go on from behind ``prompt``, which ends as for an answer still to come."""
        reasoning = messages.reasoning_text(last)
        text = messages.content_text(last, f"messages[{index}].content")
        if reasoning and thinking.OPENER not in self.template.source:
            message = "this model has no reasoning block to continue"
            raise bad_request(message, f"messages[{index}].reasoning_content")
        # The block's own markers between the two are ours.
        shield = self._shield.protect_text
        return thinking.reopen(reveal(prompt), shield(reasoning), shield(text))


def _split_continued(request: GenerationRequest) -> tuple[Sequence[Message], Message | None]:
    """Take off the assistant message that the model shall go on with."""
    if not request.continue_final_message:
        return request.messages, None
    if request.template_kwargs.get("add_generation_prompt") is True:
        message = "continue_final_message and add_generation_prompt exclude each other"
        raise bad_request(message, "continue_final_message")
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or last.tool_calls:
        message = "continue_final_message needs a last message of role assistant without tool calls"
        raise bad_request(message, "messages")
    return request.messages[:-1], last


def _response_format(constraint: Constraint) -> dict[str, Any]:
    """The constraint as chat completions spell it, if they can."""
    if constraint.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if constraint.kind != "json_schema":
        return {}
    schema = {"name": "response", "schema": json.loads(constraint.value)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _tool_choice(choice: ToolChoice) -> Any:
    """The choice as chat completions spell it."""
    if len(choice.names) == 1 and choice.mode == "required":
        return {"type": "function", "function": {"name": choice.names[0]}}
    return choice.mode
