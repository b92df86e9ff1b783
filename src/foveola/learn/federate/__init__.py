"""Federated visual prompts: many factories train one prompt, and only small updates of it leave them."""
