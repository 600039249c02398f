"""Generated from the proto package pagewire.worker."""
