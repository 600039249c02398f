"""What the model is taught: the draw of an example with its right answer."""
