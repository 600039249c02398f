"""Everything that has never run on a device, run in half an hour of one: see ../first_hour.py."""
