"""From prompts to token ids. Pure but for the tokenizer; runs on the tokenizers' threads."""

from pagewire_frontend.generation_request import ChatPrompt, TextPrompt
from pagewire_frontend.model_registry import LoadedModel
from pagewire_shared.errors import InvalidRequestError


def encode_text(model: LoadedModel, prompt: TextPrompt) -> list[int]:
    """Return the ids of a text."""
    return model.tokenizer.encode(prompt.text, add_special_tokens=prompt.add_special_tokens)


def encode_chat(model: LoadedModel, prompt: ChatPrompt) -> list[int]:
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
