"""Generated from the proto package pagewire.worker.v1."""
