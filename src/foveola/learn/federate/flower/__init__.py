"""A federation over Flower: SuperLink and SuperNodes carry the bytes over TLS, the rounds are ours."""
