"""Streams that go on without their client, and are read again from any event on."""
