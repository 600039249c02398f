"""Steps of a worker: the plans that the scheduler makes, and the results of the worker."""
