"""Generated from the proto package pagewire.common."""
