"""Generated from the proto package pagewire.frontend."""
