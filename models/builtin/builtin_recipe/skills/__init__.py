"""What the model is taught: wordings, and the draw of an example with its right answer."""
