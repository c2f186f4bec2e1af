"""Whether a chat template shows the model its tools; many say nothing of tools and leave them out without a word."""

from collections.abc import Mapping

from smg.text import probes
from smg.text.template import Template


def detect(template: Template, special: Mapping[str, str]) -> bool:
    """Whether ``template`` has a place for tools; ``special`` are its special-token variables.

    Some show them in the system message only, so they are asked with one as well. One that always fails is given the
    benefit of the doubt.
    """
    system = {"role": "system", "content": probes.WORD}
    turns = ([probes.USER], [system, probes.USER])
    prompts = [probes.ask(template, special, each, tools=probes.TOOLS) for each in turns]
    name = probes.TOOLS[0]["function"]["name"]
    return any(name in prompt for prompt in prompts if prompt is not None) or not any(prompts)
