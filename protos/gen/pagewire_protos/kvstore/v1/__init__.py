"""Generated from the proto package pagewire.kvstore.v1."""
