"""One file per server that can be compared; the seam between them and the cases is `protocol`."""
