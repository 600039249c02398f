"""From prompts to token ids. Pure but for the tokenizer."""

from pagewire_frontend.generation_request import ChatPrompt, TextPrompt
from pagewire_frontend.model_registry import LoadedModel
from pagewire_shared.errors import InvalidRequestError

SHORT_CHARS = 2000
"""Up to so much text is encoded where it is: handing it to a thread takes longer."""
SHORT_TURNS = 20
"""And so many turns, each of which the template renders, however empty it is."""


def is_short(prompt: ChatPrompt | TextPrompt) -> bool:
    """Whether encoding a prompt takes no longer than some hundred microseconds."""
    if isinstance(prompt, TextPrompt):
        return len(prompt.text) <= SHORT_CHARS
    if prompt.tools or prompt.template_arguments:
        return False
    if len(prompt.messages) > SHORT_TURNS:
        return False
    num_chars = 0
    for message in prompt.messages:
        content = message.get("content")
        if not isinstance(content, str) or len(message) > 2:
            return False
        num_chars += len(content)
    return num_chars <= SHORT_CHARS


def encode(model: LoadedModel, prompt: ChatPrompt | TextPrompt) -> list[int]:
    """Return the ids of a prompt. Raises InvalidRequestError naming messages."""
    if isinstance(prompt, TextPrompt):
        return _encode_text(model, prompt)
    return _encode_chat(model, prompt)


def _encode_text(model: LoadedModel, prompt: TextPrompt) -> list[int]:
    """Return the ids of a text."""
    return model.tokenizer.encode(prompt.text, add_special_tokens=prompt.add_special_tokens)


def _encode_chat(model: LoadedModel, prompt: ChatPrompt) -> list[int]:
    """Return the ids of a conversation. Raises InvalidRequestError naming messages."""
    if model.chat_template is None:
        raise InvalidRequestError(
            f"{model.name} has no chat template; ask for a completion", field="messages"
        )
    text = model.chat_template.render(
        prompt.messages,
        add_generation_prompt=prompt.add_generation_prompt,
        arguments=prompt.template_arguments,
        continue_final_message=prompt.continue_final_message,
        tools=prompt.tools,
    )
    # The template writes the special tokens itself.
    return model.tokenizer.encode(text, add_special_tokens=False)
