"""Messages and stubs generated from protos/pagewire; made by protos/generate.py."""
