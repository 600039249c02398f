"""A tokenizer of tokens that have no text, for tests that are about ids."""


class NoText:
    """What a session asks of a tokenizer."""

    def open_stream(self, first_ids, *, skip_special_tokens):
        return lambda token_id: None

    def decode(self, token_ids, *, skip_special_tokens):
        return ""

    def byte_reader(self, *, skip_special_tokens):
        return None
