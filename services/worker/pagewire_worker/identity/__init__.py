"""What the weights of a replica are, byte for byte."""
