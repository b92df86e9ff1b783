"""Bundle → answers: opens the graphs, queues requests, runs prefill and decode, streams text."""
