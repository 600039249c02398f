"""The scheduler role: queues requests, assigns KV blocks and plans the steps of workers. It works
on token ids; text belongs to the frontend and torch to the worker."""
