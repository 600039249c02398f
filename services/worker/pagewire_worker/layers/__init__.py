"""The layers of the native decoder, in torch."""
