"""Generated from the proto package pagewire.scheduler."""
