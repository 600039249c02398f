"""Holds groups of ranks on several hosts: how hosts find, know and end each other."""
