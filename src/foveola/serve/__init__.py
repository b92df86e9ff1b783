"""The HTTP server: requests in, answers out, over the exchange."""
