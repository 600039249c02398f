"""Encoders such as BERT: transformers in which every token attends to every other one."""
